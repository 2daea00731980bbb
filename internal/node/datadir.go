package node

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/zeebo/xxh3"

	"github.com/weft-search/weft/internal/vfs"
)

// Why a data folder cannot be used. Each comes wrapped in a *DataDirError.
var (
	// ErrDirLocked says that another process owns the folder.
	ErrDirLocked = errors.New("another process uses the data folder")
	// ErrDirNewer says that a later version of weft wrote the folder.
	ErrDirNewer = errors.New("the data folder has a newer format")
	// ErrDirReadOnly says that the folder cannot be written to.
	ErrDirReadOnly = errors.New("the data folder is read-only")
	// ErrDirDamaged says that a file of the folder cannot be understood.
	ErrDirDamaged = errors.New("the data folder is damaged")
	// ErrDirFull says that the disk has no room left.
	ErrDirFull = errors.New("the disk of the data folder is full")
	// ErrDirUnusable says that the folder cannot be opened for another reason, which the message tells.
	ErrDirUnusable = errors.New("the data folder cannot be opened")
)

// DataDirError says why a data folder cannot be used and what to do about it. It matches one of the Err… values above and, when
// the operating system had a say, its error.
type DataDirError struct {
	Path   string // the file or folder that is in the way
	Reason error  // one of the sentinels
	Detail string // what was found, may be empty
	Advice string // what to do
	Cause  error  // of the operating system, may be nil
}

func (e *DataDirError) Error() string {
	var b strings.Builder
	b.WriteString(e.Path)
	b.WriteString(": ")
	b.WriteString(e.Reason.Error())
	if e.Detail != "" {
		b.WriteString(": ")
		b.WriteString(e.Detail)
	}
	if e.Cause != nil {
		b.WriteString(": ")
		b.WriteString(e.Cause.Error())
	}
	b.WriteString("; ")
	b.WriteString(e.Advice)
	return b.String()
}

// Unwrap returns the reason and the cause.
func (e *DataDirError) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Reason}
	}
	return []error{e.Reason, e.Cause}
}

// dirError makes a *DataDirError of an error of the operating system.
func dirError(p string, err error) error {
	e := &DataDirError{Path: p, Cause: err}
	switch {
	case errors.Is(err, syscall.EROFS), errors.Is(err, fs.ErrPermission):
		e.Reason, e.Advice = ErrDirReadOnly, "make it writable for this user, or name another folder with --data-dir"
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		e.Reason, e.Advice = ErrDirFull, "free space on that disk and start again"
	default:
		e.Reason, e.Advice = ErrDirUnusable, "name a folder that exists or can be made with --data-dir"
	}
	return e
}

// identity is who a node is: it stays the same over restarts and moves.
type identity struct {
	ID      string    `json:"id"` // UUID, version 4
	Created time.Time `json:"created"`
}

// Files of a data folder.
const (
	identityFile = "node.json"
	lockFile     = "LOCK"
	catalogFile  = "catalog.json"
	placedFile   = "placed.json"
	indexesDir   = "indexes"
)

// dataDir is an open, locked data folder.
type dataDir struct {
	fs   vfs.FS
	path string
	lock io.Closer
	made bool // by this process
}

// openDataDir makes the folder if needed, locks it and reads or creates its identity. Every error is a *DataDirError.
func openDataDir(fsys vfs.FS, dir string) (*dataDir, identity, error) {
	if err := vfs.MkdirAll(fsys, path.Join(dir, indexesDir)); err != nil {
		return nil, identity{}, dirError(dir, err)
	}
	// The lock is one of the kernel on an open file: it ends with the process, however that ends.
	lock, err := fsys.Lock(path.Join(dir, lockFile))
	if errors.Is(err, vfs.ErrLocked) {
		return nil, identity{}, &DataDirError{Path: dir, Reason: ErrDirLocked, Advice: "stop it, or name another folder with --data-dir"}
	}
	if err != nil {
		return nil, identity{}, dirError(path.Join(dir, lockFile), err)
	}
	d := &dataDir{fs: fsys, path: dir, lock: lock}
	id, err := d.identity()
	if err != nil {
		return nil, identity{}, errors.Join(err, d.release())
	}
	return d, id, nil
}

// release lets the folder go.
func (d *dataDir) release() error {
	if err := d.lock.Close(); err != nil {
		return fmt.Errorf("close lock of data folder: %w", err)
	}
	return nil
}

func (d *dataDir) file(name string) string { return path.Join(d.path, name) }

func (d *dataDir) identity() (identity, error) {
	var id identity
	found, err := d.readSealed(identityFile, &id)
	if err != nil {
		return identity{}, err
	}
	if found {
		if len(id.ID) != 36 {
			return identity{}, damaged(d.file(identityFile), "the id is not a UUID")
		}
		return id, nil
	}
	_, err = d.fs.Stat(d.file(catalogFile))
	if err == nil {
		return identity{}, damaged(d.file(identityFile), "the file is missing but there is a catalog")
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return identity{}, dirError(d.file(catalogFile), err)
	}
	// Nothing is written into a folder that cannot be used.
	if err := d.readCatalog(new(catalogContent)); err != nil {
		return identity{}, err
	}
	id = identity{ID: newUUID(), Created: time.Now().UTC().Truncate(time.Second)}
	d.made = true
	return id, d.writeSealed(identityFile, 1, id)
}

// folders returns the names of the folders of indexes, whether the catalog has them or not, ascending.
func (d *dataDir) folders() ([]string, error) {
	entries, err := d.fs.ReadDir(d.file(indexesDir))
	if err != nil {
		return nil, dirError(d.file(indexesDir), err)
	}
	var names []string
	for _, e := range entries {
		if e.Dir {
			names = append(names, e.Name)
		}
	}
	return names, nil
}

// readCatalog reads catalog.json. It is written before the first folder of an index is made: where there are folders and no
// catalog, it was lost, and beginning without it would look like an empty node.
func (d *dataDir) readCatalog(out *catalogContent) error {
	found, err := d.readSealed(catalogFile, out)
	if found || err != nil {
		return err
	}
	folders, err := d.folders()
	if err != nil || len(folders) == 0 {
		return err
	}
	return &DataDirError{
		Path: d.file(catalogFile), Reason: ErrDirDamaged, Detail: fmt.Sprintf("the file is missing but %s has %d folders of indexes", indexesDir, len(folders)),
		Advice: "restore the file from a copy; to begin without these indexes, move their folders elsewhere",
	}
}

func damaged(p, detail string) error {
	return &DataDirError{Path: p, Reason: ErrDirDamaged, Detail: detail, Advice: "run weft doctor on the folder, or restore the file from a copy"}
}

// newUUID returns a random UUID, version 4 (RFC 9562, section 5.4).
func newUUID() string {
	var b [16]byte
	// crypto/rand.Read never returns an error; it ends the program when the system has no randomness.
	rand.Read(b[:])
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:16])
}

// sealed is the form of the node's own files: a JSON object whose content has a checksum, so that a flipped bit is an error and
// not another name.
type sealed struct {
	Format   int            `json:"format"`
	Checksum string         `json:"checksum"` // xxh3-64 of the bytes of content, 16 hexadecimal digits
	Content  jsontext.Value `json:"content"`
}

// maxSealed bounds a file of the node that is read whole, in bytes.
const maxSealed = 64 << 20

// readSealed reads a file that writeSealed wrote; found is false if there is none. Errors are *DataDirError.
func (d *dataDir) readSealed(name string, out any) (found bool, err error) {
	p := d.file(name)
	st, err := d.fs.Stat(p)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, dirError(p, err)
	}
	if st.Size > maxSealed {
		return false, damaged(p, fmt.Sprintf("%d bytes long", st.Size))
	}
	raw, err := vfs.ReadFile(d.fs, p)
	if err != nil {
		return false, dirError(p, err)
	}
	var s sealed
	if err := json.Unmarshal(raw, &s); err != nil {
		return false, damaged(p, "not a JSON object of the form it was written in")
	}
	if s.Format > Format {
		return false, &DataDirError{
			Path: p, Reason: ErrDirNewer, Detail: fmt.Sprintf("format %d, this program reads up to %d", s.Format, Format),
			Advice: "use the version of weft that wrote it, or a later one",
		}
	}
	if s.Format < 1 || s.Checksum != checksum(s.Content) {
		return false, damaged(p, "the checksum does not match")
	}
	if err := json.Unmarshal(s.Content, out, json.RejectUnknownMembers(true)); err != nil {
		return false, damaged(p, "the content is not what this format holds")
	}
	return true, nil
}

func checksum(b []byte) string { return fmt.Sprintf("%016x", xxh3.Hash(b)) }

// writeSealed replaces a file of the node in one step, with the format that its content needs: after a crash there is either the old or the new one. Errors of the file
// system are *DataDirError.
func (d *dataDir) writeSealed(name string, format int, content any) error {
	body, err := json.Marshal(content)
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	raw, err := json.Marshal(sealed{Format: format, Checksum: checksum(body), Content: body})
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	if err := vfs.WriteFile(d.fs, d.file(name), append(raw, '\n')); err != nil {
		return dirError(d.file(name), err)
	}
	return nil
}

// removeTree removes a folder with all it holds; one that is not there is no error.
func (d *dataDir) removeTree(p string) error {
	entries, err := d.fs.ReadDir(p)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove folder: %w", err)
	}
	for _, e := range entries {
		child := path.Join(p, e.Name)
		if e.Dir {
			err = d.removeTree(child)
		} else {
			err = d.fs.Remove(child)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove folder: %w", err)
		}
	}
	if err := d.fs.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove folder: %w", err)
	}
	return nil
}
