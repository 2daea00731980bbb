package summapb_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	summapb "github.com/weft-search/weft/api/summa"
	brokerpb "github.com/weft-search/weft/api/summa/broker"
)

const (
	clientVersion = "2.1.1"
	clientFile    = "testdata/client-" + clientVersion + ".txt" // what testdata/describe.py prints of the published client
	laterFile     = "testdata/later.txt"                        // what the wire has beyond that client: version 2.2, the broker's calls, our extensions
)

func lines(t *testing.T, file string) []string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(b)), "\n")
}

// TestWireIsSumma compares the contracts with those of the published client, line by line in both directions.
func TestWireIsSumma(t *testing.T) {
	want := map[string]bool{}
	for _, line := range append(lines(t, clientFile), lines(t, laterFile)...) {
		if want[line] {
			t.Errorf("%s: twice", line)
		}
		want[line] = true
	}
	ours := map[string]bool{}
	for _, line := range append(listing(summapb.File_summa_summa_proto), listing(brokerpb.File_summa_broker_broker_proto)...) {
		ours[line] = true
		if !want[line] {
			t.Errorf("%s: neither in the published client nor in %s", line, laterFile)
		}
	}
	for line := range want {
		if !ours[line] {
			t.Errorf("%s: not in the contracts", line)
		}
	}
}

// TestPublishedClient asks the registry for the published client and describes it again. It makes an environment of its own.
func TestPublishedClient(t *testing.T) {
	if os.Getenv("WEFT_SUMMA_CLIENT") == "" {
		t.Skip("installs the Python client: set WEFT_SUMMA_CLIENT=1")
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Fatal("there is no python3:", err)
	}
	env := filepath.Join(t.TempDir(), "env")
	if out, err := exec.Command(python, "-m", "venv", env).CombinedOutput(); err != nil {
		t.Fatalf("python3 makes no virtual environment: %v\n%s", err, out)
	}
	bin := filepath.Join(env, "bin")
	if out, err := exec.Command(filepath.Join(bin, "pip"), "install", "-q", "summa-client-python=="+clientVersion).CombinedOutput(); err != nil {
		t.Fatalf("the registry does not give the client: %v\n%s", err, out)
	}
	out, err := exec.Command(filepath.Join(bin, "python"), "testdata/describe.py").Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Split(strings.TrimSpace(string(out)), "\n"); !slices.Equal(got, lines(t, clientFile)) {
		t.Errorf("the published client is not what %s says; it prints\n%s", clientFile, out)
	}
}

// listing describes a file as testdata/describe.py does.
func listing(file protoreflect.FileDescriptor) []string {
	out := messages(file.Messages())
	for i := range file.Enums().Len() {
		e := file.Enums().Get(i)
		for j := range e.Values().Len() {
			v := e.Values().Get(j)
			out = append(out, fmt.Sprintf("%s %d %s value", e.FullName(), v.Number(), v.Name()))
		}
	}
	for i := range file.Services().Len() {
		s := file.Services().Get(i)
		for j := range s.Methods().Len() {
			m := s.Methods().Get(j)
			kind := "call"
			if m.IsStreamingClient() {
				kind = "stream"
			}
			out = append(out, fmt.Sprintf("%s %s %s %s %s", s.FullName(), m.Name(), kind, m.Input().FullName(), m.Output().FullName()))
		}
	}
	return out
}

func messages(all protoreflect.MessageDescriptors) []string {
	var out []string
	for i := range all.Len() {
		m := all.Get(i)
		out = append(out, fmt.Sprintf("%s message", m.FullName()))
		for j := range m.Fields().Len() {
			f := m.Fields().Get(j)
			shape, kind := "single", f.Kind().String()
			switch {
			case f.Cardinality() == protoreflect.Repeated:
				shape = "repeated"
			case f.HasOptionalKeyword():
				shape = "optional"
			case f.ContainingOneof() != nil:
				shape = "oneof=" + string(f.ContainingOneof().Name())
			}
			if f.Message() != nil {
				kind += " " + string(f.Message().FullName())
			}
			if f.Enum() != nil {
				kind += " " + string(f.Enum().FullName())
			}
			out = append(out, fmt.Sprintf("%s %d %s %s %s", m.FullName(), f.Number(), f.Name(), shape, kind))
		}
		out = append(out, messages(m.Messages())...)
	}
	return out
}
