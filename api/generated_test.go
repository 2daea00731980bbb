// Package api_test checks the generated code of the wire contracts.
package api_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestGenerated lints the contracts, compares them with what nodes speak, generates their code again and compares it with what is
// committed. It builds buf, which takes minutes where the build cache does not have it; `make gen-check` asks for it.
func TestGenerated(t *testing.T) {
	if os.Getenv("WEFT_GEN_CHECK") == "" {
		t.Skip("builds buf, which takes minutes at first: run make gen-check")
	}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) {
		t.Helper()
		cmd := exec.Command("go", args...)
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	for _, mod := range []string{"tools/buf/go.mod", "tools/go.mod"} {
		cmd := exec.Command("go", "mod", "download")
		cmd.Dir = filepath.Join(root, filepath.Dir(mod))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Skipf("the modules of %s cannot be downloaded: %v\n%s", mod, err, out)
		}
	}
	const buf = "-modfile=tools/buf/go.mod"
	run("tool", buf, "buf", "lint", "api")
	run("tool", buf, "buf", "breaking", "api", "--against", "api/shard/v1/testdata/v1.binpb")
	out := t.TempDir()
	run("tool", buf, "buf", "generate", "--template", "api/buf.gen.yaml", "--output", out, "api")
	made := map[string]bool{}
	err = filepath.WalkDir(out, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(out, path)
		if err != nil {
			return err
		}
		made[filepath.ToSlash(name)] = true
		got, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		want, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return err
		}
		if string(got) != string(want) {
			t.Errorf("%s is not what make gen makes", name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"api/shard/v1/shard.pb.go", "api/shard/v1/shard_grpc.pb.go",
		"api/summa/summa.pb.go", "api/summa/summa_grpc.pb.go", "api/summa/broker/broker.pb.go", "api/summa/broker/broker_grpc.pb.go",
	} {
		if !made[name] {
			t.Errorf("%s was not made", name)
		}
	}
}
