package fleet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/weft-search/weft/internal/broker/route"
)

// Node is a Summa server as discovery knows it.
type Node struct {
	ID, Address, Shard string // none is empty; Address is host:port
	Role               route.Role
	Ready              bool
}

// Source tells which nodes there are.
type Source interface {
	// Run calls publish with all nodes that there are, at the start and whenever something changed, until ctx ends. Ids differ within one
	// list. publish does not wait, may be called as often as it pleases, and keeps the list, which is not to be changed any more. An error
	// before ctx ends says that nothing more can be known, and ends the Fleet.
	Run(ctx context.Context, publish func([]Node)) error
}

// Static is a Source of nodes that do not change and are always ready.
type Static []Node

// Run implements Source.
func (s Static) Run(ctx context.Context, publish func([]Node)) error {
	publish(s)
	<-ctx.Done()
	return nil
}

// ParseStatic parses the texts of all --backend flags, each id=..,addr=host:port,shard=..[,role=master|follower] ("Flags" of the contract).
// The error is the refusal at start. Equal ids are refused (line B3 of the differences).
func ParseStatic(texts []string) (Static, error) {
	if len(texts) == 0 {
		return nil, errors.New("--discovery static requires at least one --backend")
	}
	var out Static
	seen := map[string]bool{}
	for _, text := range texts {
		n, err := parseNode(text)
		if err == nil && seen[n.ID] {
			err = fmt.Errorf("id '%s' is another backend's", n.ID)
		}
		if err != nil {
			return nil, fmt.Errorf("invalid --backend '%s': %w", text, err)
		}
		seen[n.ID] = true
		out = append(out, n)
	}
	return out, nil
}

func parseNode(text string) (Node, error) {
	values := map[string]string{}
	for piece := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(piece, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		_, twice := values[key]
		switch {
		case !ok:
			return Node{}, fmt.Errorf("'%s' is not key=value", piece)
		case key != "id" && key != "addr" && key != "shard" && key != "role":
			return Node{}, fmt.Errorf("unknown key '%s'; the keys are id, addr, shard and role", key)
		case twice:
			return Node{}, fmt.Errorf("'%s' stands there twice", key)
		case value == "":
			return Node{}, fmt.Errorf("'%s' is empty", key)
		}
		values[key] = value
	}
	for _, key := range []string{"id", "addr", "shard"} {
		if values[key] == "" {
			return Node{}, fmt.Errorf("'%s' is missing", key)
		}
	}
	n := Node{ID: values["id"], Address: values["addr"], Shard: values["shard"], Ready: true}
	host, port, err := net.SplitHostPort(n.Address)
	if err != nil || host == "" {
		return Node{}, fmt.Errorf("addr '%s' is not host:port", n.Address)
	}
	if p, err := strconv.ParseUint(port, 10, 16); err != nil || p == 0 {
		return Node{}, fmt.Errorf("addr '%s' has no port of 1 to 65535", n.Address)
	}
	if role := values["role"]; role != "" {
		var ok bool
		if n.Role, ok = route.ParseRole(role); !ok {
			return Node{}, fmt.Errorf("role '%s' is neither master nor follower", role)
		}
	}
	return n, nil
}
