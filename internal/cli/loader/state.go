package loader

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/weft-search/weft/internal/vfs"
)

// stateVersion is the version of the state file that this program writes and reads.
const stateVersion = 1

// state is what the state file holds: how much of each input the server has acknowledged.
type state struct {
	Version int          `json:"version"`
	URL     string       `json:"url"`
	Index   string       `json:"index"`
	Files   []*fileState `json:"files"`
}

type fileState struct {
	Path    string    `json:"path"` // absolute
	Size    int64     `json:"size"`
	ModTime time.Time `json:"mtime"`
	Started time.Time `json:"started"`  // when reading it from the front began
	Offset  int64     `json:"offset"`   // decompressed bytes behind the last document such that it and all before it are acknowledged
	Line    int64     `json:"line"`     // lines before Offset; of a folder, files
	After   string    `json:"after"`    // of a folder, the last path
	Done    bool      `json:"done"`     // all of it
	IDField string    `json:"id_field"` // as it was read; another one starts over
}

func readState(path string) (*state, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &state{Version: stateVersion}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read state file: %w", err)
	}
	var s state
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, fmt.Errorf("read state file %s: %w", path, err)
	}
	if s.Version != stateVersion {
		return nil, fmt.Errorf("state file %s has version %d, this program reads %d", path, s.Version, stateVersion)
	}
	return &s, nil
}

// write replaces the file, so that a crash leaves the old or the new one.
func (s *state) write(path string) error {
	b, err := json.Marshal(s, jsontext.WithIndent("  "))
	if err != nil {
		return fmt.Errorf("encode state: %w", err)
	}
	if err := vfs.WriteFile(vfs.OS, path, append(b, '\n')); err != nil {
		return fmt.Errorf("write state file: %w", err)
	}
	return nil
}

// entry returns the place of an input in the state. A file that has changed since starts over; why is then not empty.
func (s *state) entry(in Input, idField string, now time.Time) (f *fileState, why string, err error) {
	path, err := filepath.Abs(in.Path)
	if err != nil {
		return nil, "", fmt.Errorf("find absolute path of %s: %w", in.Path, err)
	}
	fresh := fileState{Path: path, Size: in.Size, ModTime: in.ModTime.UTC(), Started: now.UTC(), IDField: idField}
	for _, f := range s.Files {
		if f.Path != path {
			continue
		}
		switch {
		case f.Size != fresh.Size || !f.ModTime.Equal(fresh.ModTime):
			why = "it has changed since"
		case f.IDField != idField:
			why = "--id-field is another one"
		default:
			return f, "", nil
		}
		*f = fresh
		return f, why, nil
	}
	s.Files = append(s.Files, &fresh)
	return &fresh, "", nil
}

func (f *fileState) position() position {
	return position{Offset: f.Offset, Line: f.Line, After: f.After}
}

// progress knows which documents are acknowledged and moves the places in the state behind every document that has none open
// before it. Callers lock.
type progress struct {
	first uint64 // sequence number of open[0]
	open  []openDoc
}

type openDoc struct {
	file *fileState
	pos  position
	end  bool // the end of the file, not a document
	done bool
}

// add enters the next thing read and returns its number.
func (p *progress) add(d openDoc) uint64 {
	p.open = append(p.open, d)
	return p.first + uint64(len(p.open)) - 1
}

// settle marks a number as acknowledged or rejected.
func (p *progress) settle(seq uint64) { p.open[seq-p.first].done = true }

// advance moves the state and returns whether it moved.
func (p *progress) advance() bool {
	n := 0
	for n < len(p.open) && p.open[n].done {
		d := &p.open[n]
		if d.end {
			d.file.Done = true
		} else {
			d.file.Offset, d.file.Line, d.file.After = d.pos.Offset, d.pos.Line, d.pos.After
		}
		n++
	}
	if n == 0 {
		return false
	}
	p.open = p.open[:copy(p.open, p.open[n:])]
	p.first += uint64(n)
	return true
}
