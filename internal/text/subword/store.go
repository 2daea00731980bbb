package subword

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
)

// The files of a model.
const (
	tokenizerFile = "tokenizer.json"
	weightsFile   = "idf.json"
)

const (
	maxFile   = 64 << 20 // bytes
	maxModels = 64       // that a Store keeps
)

// A NotFoundError says that a model is not in the folder, or that its name is none that could be.
type NotFoundError struct{ Name string }

func (e *NotFoundError) Error() string { return fmt.Sprintf("there is no tokenizer %q", e.Name) }

// Store has the models of a folder, each in a folder of its name. All methods are safe for concurrent use.
type Store struct {
	dir string

	mu     sync.Mutex
	models map[string]*entry
}

// NewStore returns the store of a folder, which is looked at when something is asked for.
func NewStore(dir string) *Store { return &Store{dir: dir, models: map[string]*entry{}} }

// entry is what was read of one.
type entry struct {
	mu      sync.Mutex
	tok     kept[*Tokenizer]
	weights kept[*Weights]
}

// kept is what was made of a file, good or bad, as long as the file is the same.
type kept[T any] struct {
	read bool
	size int64
	time time.Time
	made T
	err  error
}

// Weights are the weights of the tokens of a model, as it was trained with.
type Weights struct{ of map[uint32]float32 }

// Of returns the weight of a token; 1 where there is none.
func (w *Weights) Of(token uint32) float32 {
	if v, ok := w.of[token]; ok {
		return v
	}
	return 1
}

// Tokenizer returns the tokenizer of a model. name is the path of its folder below that of the store, with slashes, or its whole path.
// Errors are *NotFoundError, *FormatError, or of reading.
func (s *Store) Tokenizer(name string) (*Tokenizer, error) {
	m, dir, err := s.model(name)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.tokenizer(s, name, dir)
}

// Weights returns the weights that a model has in idf.json, by the numbers that its tokenizer has for the tokens. Errors are those of
// Tokenizer.
func (s *Store) Weights(name string) (*Weights, error) {
	m, dir, err := s.model(name)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	tok, err := m.tokenizer(s, name, dir)
	if err != nil {
		return nil, err
	}
	return fresh(&m.weights, s, name, filepath.Join(dir, weightsFile), func(data []byte) (*Weights, error) { return parseWeights(tok, data) })
}

func parseWeights(tok *Tokenizer, data []byte) (*Weights, error) {
	var list map[string]float64
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, broken(err)
	}
	out := &Weights{of: make(map[uint32]float32, len(list))}
	for token, v := range list {
		w := float32(v)
		if math.IsInf(float64(w), 0) {
			return nil, refuse("the weight of %q is too large", token)
		}
		if id, ok := tok.Token(token); ok {
			out.of[id] = w
		}
	}
	return out, nil
}

func (s *Store) model(name string) (m *entry, dir string, err error) {
	dir = filepath.FromSlash(name)
	if filepath.IsAbs(dir) {
		// The whole path of the file, or of its folder, as long as it is in the folder of the store.
		root, err := filepath.Abs(s.dir)
		if err != nil {
			return nil, "", err
		}
		if dir, err = filepath.Rel(root, strings.TrimSuffix(filepath.Clean(dir), string(filepath.Separator)+tokenizerFile)); err != nil {
			return nil, "", &NotFoundError{name}
		}
	}
	if dir == "." || !filepath.IsLocal(dir) || dir != filepath.Clean(dir) || strings.Contains(name, "://") {
		return nil, "", &NotFoundError{name}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if m = s.models[dir]; m == nil {
		if len(s.models) >= maxModels {
			clear(s.models)
		}
		m = &entry{}
		s.models[dir] = m
	}
	return m, dir, nil
}

func (m *entry) tokenizer(s *Store, name, dir string) (*Tokenizer, error) {
	before := m.tok.made
	tok, err := fresh(&m.tok, s, name, filepath.Join(dir, tokenizerFile), Parse)
	if tok != before {
		m.weights = kept[*Weights]{} // by the numbers of another one
	}
	return tok, err
}

// fresh returns what a file is made into, and makes it anew when the file is another. A link does not lead out of the folder.
func fresh[T any](k *kept[T], s *Store, name, path string, parse func([]byte) (T, error)) (none T, err error) {
	root, err := os.OpenRoot(s.dir)
	if err != nil {
		return none, absent(err, name)
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	// To open a pipe would wait until something is written to it.
	if info, err := root.Stat(path); err != nil {
		return none, absent(err, name)
	} else if !info.Mode().IsRegular() {
		return none, &NotFoundError{name}
	}
	f, err := root.Open(path)
	if err != nil {
		return none, absent(err, name)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return none, err
	}
	if !info.Mode().IsRegular() {
		return none, &NotFoundError{name}
	}
	if k.read && k.size == info.Size() && k.time.Equal(info.ModTime()) {
		return k.made, k.err
	}
	if info.Size() > maxFile {
		return none, refuse("it has %d bytes; at most %d are read", info.Size(), maxFile)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return none, err
	}
	*k = kept[T]{read: true, size: info.Size(), time: info.ModTime()}
	k.made, k.err = parse(data)
	return k.made, k.err
}

func absent(err error, name string) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrInvalid) {
		return &NotFoundError{name}
	}
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return &NotFoundError{name} // a folder, a file in the place of one, a link that leads out
	}
	return err
}
