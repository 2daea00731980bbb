package schema

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func mustSDL(t *testing.T, src string) *Schema {
	t.Helper()
	s, err := ParseSDL(src, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestWithKey(t *testing.T) {
	for _, c := range []struct{ name, in, out string }{
		{"declared", "index a { field u: text [primary] }", "field u: text<simple> [indexed, fast, primary]"},
		{"added", "index a { field t: u64 }", "field id: text<raw> [indexed, stored, fast, primary]"},
		{"promoted", "index a { field t: u64 field id: text<raw> [indexed, stored] }", "field id: text<raw> [indexed, stored, fast, primary]"},
		{"number", "index a { field id: u64 }", ""},
		{"multi", "index a { field id: text [stored<multi>] }", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := mustSDL(t, c.in)
			s, err := before.WithKey()
			if c.out == "" {
				var fe *FieldError
				if !errors.As(err, &fe) || fe.Field != "id" {
					t.Fatalf("got %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(s.SDL(), c.out) || s.PrimaryField() < 0 {
				t.Fatalf("got\n%s", s.SDL())
			}
			if err := s.Validate(); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(mustSDL(t, c.in), before); diff != "" {
				t.Fatalf("the argument changed: %s", diff)
			}
		})
	}
	if err := NewDynamic("x").Validate(); err != nil {
		t.Fatal(err)
	}
}

func TestAddFields(t *testing.T) {
	s := mustSDL(t, "index a { field id: text<raw> [primary] field n: u64 [fast] }")
	add := func(decl string) (*Schema, error) {
		return s.AddFields(mustSDL(t, "index b { "+decl+" }").Fields)
	}
	if same, err := add("field n: uint [fast]"); err != nil || same != s {
		t.Fatalf("equal declaration: %v", err)
	}
	more, err := add("field m: i64 field n: u64 [fast] field v: dense_vector<2>")
	if err != nil {
		t.Fatal(err)
	}
	if more.Generation != s.Generation+1 || len(more.Fields) != 4 || more.Fields[2].Name != "m" || len(s.Fields) != 2 {
		t.Fatalf("got\n%s", more.SDL())
	}
	_, err = add("field m: i64 field n: u64 [stored, fast]")
	var ce *ConflictError
	if !errors.As(err, &ce) || ce.Field != "n" {
		t.Fatalf("changed field: %v", err)
	}
	if want := `field "n" is u64 [fast] in the index and cannot become u64 [stored, fast]`; ce.Error() != want {
		t.Errorf("got %s", ce)
	}
	if _, err = add("field key: text<raw> [primary]"); !errors.As(err, &ce) || ce.Field != "key" {
		t.Fatalf("second key: %v", err)
	}
	var fe *FieldError
	if _, err = s.AddFields([]Field{{Name: "x", Type: DenseVector, Stored: true}}); !errors.As(err, &fe) || fe.Field != "x" {
		t.Fatalf("bad field: %v", err)
	}
	inferred := s.Fields[1]
	inferred.Inferred = true
	if same, err := s.AddFields([]Field{inferred}); err != nil || same != s {
		t.Fatalf("inferred and declared alike: %v", err)
	}
	// Two schemas that grow from one must not share the memory of what they add.
	a, err := s.AddFields([]Field{{Name: "a", Type: I64, Stored: true}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.AddFields([]Field{{Name: "b", Type: F64, Stored: true}}); err != nil || a.Fields[2].Name != "a" {
		t.Fatalf("shared memory: %v, %v", a.Fields[2].Name, err)
	}
}

func TestRedeclare(t *testing.T) {
	s := mustSDL(t, "index a { field id: text<raw> [primary] field n: u64 [fast] }")
	same, change, err := s.Redeclare(mustSDL(t, "index a { field n: u64 [fast] }"))
	if err != nil || same != s || !change.Empty() || len(change.Kept) != 1 || change.Kept[0] != "id" {
		t.Fatalf("%+v %v", change, err)
	}
	next, change, err := s.Redeclare(mustSDL(t, "index a { default_fields: [n] field x: json }"))
	if err != nil || len(change.Added) != 1 || !change.Options || next.Generation != 2 || next.DefaultFields[0] != "n" || len(next.Fields) != 3 {
		t.Fatalf("%+v %v", change, err)
	}
	var ce *ConflictError
	if _, _, err := s.Redeclare(mustSDL(t, "index a { field n: i64 [fast] }")); !errors.As(err, &ce) {
		t.Fatalf("conflict: %v", err)
	}
}
