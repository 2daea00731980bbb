package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"
)

// envName is the environment variable of a flag.
func envName(flag string) string {
	return "WEFT_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// envResolver takes flags from the environment.
type envResolver struct {
	lookup func(string) (string, bool)
}

// Validate accepts everything: the environment also holds what is not ours.
func (envResolver) Validate(*kong.Application) error { return nil }

// Resolve returns the variable of the flag. An empty one counts as none, as scripts that pass variables on expect.
func (e envResolver) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	if e.lookup == nil || flag.Name == "help" {
		return nil, nil
	}
	v, ok := e.lookup(envName(flag.Name))
	if !ok || v == "" {
		return nil, nil
	}
	return v, nil
}

// longestConfig bounds the bytes of a file of settings.
const longestConfig = 1 << 20

// fileResolver takes flags from the file of --config: those of every command at the top, those of a command in a mapping with its name.
type fileResolver struct {
	path   string
	values map[string]any
}

// load reads the file if one is named.
func (f *fileResolver) load(ctx *kong.Context, lookup func(string) (string, bool)) error {
	for _, flag := range ctx.Flags() {
		if flag.Name == "config" {
			if v, ok := ctx.FlagValue(flag).(string); ok {
				f.path = v
			}
		}
	}
	if f.path == "" && lookup != nil {
		f.path, _ = lookup(envName("config"))
	}
	if f.path == "" {
		return nil
	}
	b, err := readSmall(f.path, longestConfig)
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	dec := yaml.NewDecoder(strings.NewReader(string(b)))
	if err := dec.Decode(&f.values); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("--config: %s: %w", f.path, err)
	}
	return f.check(ctx.Model)
}

// readSmall reads a file that is to be no longer than most bytes.
func readSmall(path string, most int64) (b []byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	b, err = io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > most {
		return nil, fmt.Errorf("%s is longer than %d bytes", path, most)
	}
	return b, nil
}

// check refuses names that no command knows, so that a misspelt setting is not silently without effect.
func (f *fileResolver) check(app *kong.Application) error {
	for name, v := range f.values {
		if hasFlag(app.Node, name) && name != "config" && name != "help" {
			if _, nested := v.(map[string]any); nested {
				return fmt.Errorf("--config: %s: %s is a mapping, not a value", f.path, name)
			}
			continue
		}
		at := slices.IndexFunc(app.Children, func(n *kong.Node) bool { return n.Name == name })
		if at < 0 {
			return fmt.Errorf("--config: %s: unknown setting %q", f.path, name)
		}
		section, ok := v.(map[string]any)
		if !ok {
			return fmt.Errorf("--config: %s: %s is a command; its flags go below it", f.path, name)
		}
		for flag := range section {
			if !hasFlag(app.Children[at], flag) {
				return fmt.Errorf("--config: %s: unknown setting %q of %s", f.path, flag, name)
			}
		}
	}
	return nil
}

func hasFlag(n *kong.Node, name string) bool {
	return slices.ContainsFunc(n.Flags, func(f *kong.Flag) bool { return f.Name == name })
}

// Validate accepts everything: load has checked the file.
func (f *fileResolver) Validate(*kong.Application) error { return nil }

// Resolve returns the value that the file has for a flag.
func (f *fileResolver) Resolve(_ *kong.Context, parent *kong.Path, flag *kong.Flag) (any, error) {
	from := f.values
	if n := parent.Node(); n != nil && n.Type == kong.CommandNode {
		from, _ = f.values[n.Name].(map[string]any)
	}
	v, ok := from[flag.Name]
	if !ok || v == nil {
		return nil, nil
	}
	switch v := v.(type) {
	case []any, map[string]any:
		return v, nil
	default:
		// Numbers and booleans go through the flag's own reading, as if they had been typed.
		return fmt.Sprint(v), nil
	}
}
