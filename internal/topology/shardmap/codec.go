package shardmap

import (
	"fmt"

	"github.com/go-json-experiment/json"

	"github.com/weft-search/weft/internal/topology/placement"
)

// FormatVersion is the newest version of maps that this code reads and writes. A map that has no nodes is written as version 1.
//
//	1  first
//	2  with nodes
const FormatVersion = 2

// The encoded map, one JSON object:
//
//	{"format":1,"epoch":7,"rule":"ring","vnodes":128,"groups":[{"members":["a:1","a:2"]},{"members":["b:1"]}],"placed":1,
//	 "move":{"to":2,"phase":"copying","job":"j1"}}
//
// where move is null outside a move, its phase is "preparing", "copying", "switching" or "cleaning", and vnodes is 0 for rules without. A map that a Source keeps has "stored":true at the end,
// and one that knows data folders, of format 2, "nodes":{"a:1":"01890a5d-ac96-774b-bcce-b302099a8057","a:2":"-"} behind that, by address.
type encoded struct {
	Format int            `json:"format"`
	Epoch  uint64         `json:"epoch"`
	Rule   placement.Rule `json:"rule"`
	VNodes int            `json:"vnodes"`
	Groups []encodedGroup `json:"groups"`
	Placed int            `json:"placed"`
	Move   *encodedMove   `json:"move"`
	Stored bool           `json:"stored,omitzero"`

	Nodes map[string]string `json:"nodes,omitempty"`
}

type encodedGroup struct {
	Members []string `json:"members"`
}

type encodedMove struct {
	To    int    `json:"to"`
	Phase Phase  `json:"phase"`
	Job   string `json:"job"`
}

// Encode returns the map as JSON. Maps that say the same have the same bytes: members in the order above, no space, VNodes filled in.
// A map that is not valid, or above MaxBytes, is an ErrInvalid.
func (m *Map) Encode() ([]byte, error) {
	if err := m.Validate(); err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	e := encoded{
		Format: 1, Epoch: m.Epoch, Rule: m.Rule, VNodes: m.spec(len(m.Groups)).Normal().VNodes,
		Groups: make([]encodedGroup, len(m.Groups)), Placed: m.Placed, Move: (*encodedMove)(m.Move),
		Stored: m.Stored, Nodes: m.Nodes,
	}
	if len(m.Nodes) > 0 {
		e.Format = 2
	}
	for i, g := range m.Groups {
		e.Groups[i] = encodedGroup(g)
	}
	b, err := json.Marshal(e, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("encode shard map: %w", err)
	}
	if len(b) > MaxBytes {
		return nil, fmt.Errorf("encode: %w", invalid("%d bytes encoded, the limit is %d", len(b), MaxBytes))
	}
	return b, nil
}

// Decode reads what Encode wrote. Space and the order of members do not matter; members that are unknown or given twice are refused, as
// is everything that Validate refuses (ErrInvalid). A map of a newer format is an ErrNewerFormat.
func Decode(b []byte) (*Map, error) {
	if len(b) > MaxBytes {
		return nil, fmt.Errorf("decode: %w", invalid("%d bytes, the limit is %d", len(b), MaxBytes))
	}
	var f struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(b, &f); err != nil {
		return nil, fmt.Errorf("decode: %w: %w", ErrInvalid, err)
	}
	if f.Format > FormatVersion {
		return nil, fmt.Errorf("decode: %w: format %d, this one reads up to %d", ErrNewerFormat, f.Format, FormatVersion)
	}
	if f.Format < 1 {
		return nil, fmt.Errorf("decode: %w", invalid("format %d", f.Format))
	}
	var e encoded
	if err := json.Unmarshal(b, &e, json.RejectUnknownMembers(true)); err != nil {
		return nil, fmt.Errorf("decode: %w: %w", ErrInvalid, err)
	}
	if f.Format < 2 && e.Nodes != nil {
		return nil, fmt.Errorf("decode: %w", invalid("format 1 has no nodes"))
	}
	m := &Map{Epoch: e.Epoch, Rule: e.Rule, VNodes: e.VNodes, Groups: make([]Group, len(e.Groups)), Placed: e.Placed, Move: (*Move)(e.Move), Stored: e.Stored}
	for i, g := range e.Groups {
		m.Groups[i] = Group(g)
	}
	if len(e.Nodes) > 0 {
		m.Nodes = e.Nodes
	}
	if err := m.Validate(); err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	m.VNodes = m.spec(len(m.Groups)).Normal().VNodes
	return m, nil
}
