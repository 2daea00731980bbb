package fleet

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/weft-search/weft/internal/broker/route"
)

func TestParseStatic(t *testing.T) {
	for _, c := range []struct {
		text string
		want Node
		bad  string
	}{
		{text: "id=n0,addr=127.0.0.1:52100,shard=0", want: Node{"n0", "127.0.0.1:52100", "0", route.Unlabeled, true}},
		{text: "shard=s 1,role=master,addr=summa-0.summa:1,id=n0", want: Node{"n0", "summa-0.summa:1", "s 1", route.Master, true}},
		{text: " id = n0 , addr = [::1]:65535 , shard = 0 , role = follower ", want: Node{"n0", "[::1]:65535", "0", route.Follower, true}},
		{text: "", bad: "'' is not key=value"},
		{text: "id=n0,addr=h:1,shard=0,", bad: "'' is not key=value"},
		{text: "id=n0,addr=h:1,shard", bad: "'shard' is not key=value"},
		{text: "id=n0,addr=h:1", bad: "'shard' is missing"},
		{text: "id=n0,shard=0", bad: "'addr' is missing"},
		{text: "addr=h:1,shard=0", bad: "'id' is missing"},
		{text: "id=,addr=h:1,shard=0", bad: "'id' is empty"},
		{text: "id=n0,addr= ,shard=0", bad: "'addr' is empty"},
		{text: "id=n0,addr=h:1,shard=", bad: "'shard' is empty"},
		{text: "id=n0,addr=h:1,shard=0,role=", bad: "'role' is empty"},
		{text: "id=n0,addr=h:1,shard=0,zone=a", bad: "unknown key 'zone'; the keys are id, addr, shard and role"},
		{text: "ID=n0,addr=h:1,shard=0", bad: "unknown key 'ID'; the keys are id, addr, shard and role"},
		{text: "id=n0,id=n1,addr=h:1,shard=0", bad: "'id' stands there twice"},
		{text: "id=n0,addr=h:1,shard=0,role=leader", bad: "role 'leader' is neither master nor follower"},
		{text: "id=n0,addr=h:1,shard=0,role=unlabeled", bad: "role 'unlabeled' is neither master nor follower"},
		{text: "id=n0,addr=h,shard=0", bad: "addr 'h' is not host:port"},
		{text: "id=n0,addr=:1,shard=0", bad: "addr ':1' is not host:port"},
		{text: "id=n0,addr=::1,shard=0", bad: "addr '::1' is not host:port"},
		{text: "id=n0,addr=h:,shard=0", bad: "addr 'h:' has no port of 1 to 65535"},
		{text: "id=n0,addr=h:0,shard=0", bad: "addr 'h:0' has no port of 1 to 65535"},
		{text: "id=n0,addr=h:65536,shard=0", bad: "addr 'h:65536' has no port of 1 to 65535"},
		{text: "id=n0,addr=h:http,shard=0", bad: "addr 'h:http' has no port of 1 to 65535"},
	} {
		got, err := ParseStatic([]string{c.text})
		switch {
		case c.bad != "":
			if want := "invalid --backend '" + c.text + "': " + c.bad; err == nil || err.Error() != want {
				t.Errorf("%q gives %v, not %s", c.text, err, want)
			}
		case err != nil || !slices.Equal(got, Static{c.want}):
			t.Errorf("%q gives %+v and %v", c.text, got, err)
		}
	}
}

func TestStaticIDsDiffer(t *testing.T) {
	_, err := ParseStatic([]string{"id=n0,addr=h:1,shard=0", "id=n1,addr=h:1,shard=0", "id=n0,addr=h:2,shard=1"})
	if want := "invalid --backend 'id=n0,addr=h:2,shard=1': id 'n0' is another backend's"; err == nil || err.Error() != want {
		t.Errorf("it is %v, not %s", err, want)
	}
	if _, err := ParseStatic(nil); err == nil || err.Error() != "--discovery static requires at least one --backend" {
		t.Errorf("no backends give %v", err)
	}
}

func TestStaticTellsOnceAndStays(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	told := make(chan []Node, 2)
	ended := make(chan error)
	go func() { ended <- Static{{ID: "a"}}.Run(ctx, func(n []Node) { told <- n }) }()
	if got := <-told; len(got) != 1 {
		t.Errorf("it tells of %v", got)
	}
	cancel()
	if err := <-ended; err != nil || len(told) > 0 {
		t.Errorf("it ends with %v, and told %d times more", err, len(told))
	}
}

func FuzzParseStatic(f *testing.F) {
	for _, s := range []string{"id=n0,addr=127.0.0.1:52100,shard=0", "id=a,addr=[::1]:1,shard=b,role=master", ",=,", "id=id=,addr=h:1,shard=="} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		nodes, err := ParseStatic([]string{text})
		if err != nil {
			if !strings.HasPrefix(err.Error(), "invalid --backend '"+text+"': ") {
				t.Fatalf("the refusal is %q", err)
			}
			return
		}
		n := nodes[0]
		if n.ID == "" || n.Address == "" || n.Shard == "" || !n.Ready {
			t.Fatalf("%q gives %+v", text, n)
		}
		again := "id=" + n.ID + ",addr=" + n.Address + ",shard=" + n.Shard
		if n.Role != route.Unlabeled {
			again += ",role=" + n.Role.String()
		}
		if twin, err := ParseStatic([]string{again}); err != nil || twin[0] != n {
			t.Fatalf("%q is %+v, but %q is %+v (%v)", text, n, again, twin, err)
		}
	})
}
