package node

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"
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
func dirError(path string, err error) error {
	e := &DataDirError{Path: path, Cause: err}
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
	indexesDir   = "indexes"
)

// dataDir is an open, locked data folder.
type dataDir struct {
	path string
	lock *os.File
}

// openDataDir makes the folder if needed, locks it and reads or creates its identity. Every error is a *DataDirError.
func openDataDir(path string) (*dataDir, identity, error) {
	if err := os.MkdirAll(filepath.Join(path, indexesDir), 0o700); err != nil {
		return nil, identity{}, dirError(path, err)
	}
	d := &dataDir{path: path}
	if err := d.acquire(); err != nil {
		return nil, identity{}, err
	}
	id, err := d.identity()
	if err != nil {
		return nil, identity{}, errors.Join(err, d.release())
	}
	return d, id, nil
}

// acquire takes the lock. It is a lock of the kernel on an open file: it ends with the process, however that ends.
func (d *dataDir) acquire() error {
	path := filepath.Join(d.path, lockFile)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return dirError(path, err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		held := make([]byte, 20)
		n, rerr := f.ReadAt(held, 0)
		err = errors.Join(err, f.Close())
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return dirError(path, err)
		}
		e := &DataDirError{Path: d.path, Reason: ErrDirLocked, Advice: "stop it, or name another folder with --data-dir"}
		// A read to the end of a short file gives io.EOF with what was read; what is there only helps to find the process.
		if pid, perr := strconv.Atoi(strings.TrimSpace(string(held[:n]))); perr == nil && (rerr == nil || n > 0) {
			e.Detail = "process " + strconv.Itoa(pid)
		}
		return e
	}
	pid := []byte(strconv.Itoa(os.Getpid()) + "\n")
	if err := f.Truncate(0); err == nil {
		_, err = f.WriteAt(pid, 0)
		if err != nil {
			return errors.Join(dirError(path, err), f.Close())
		}
	} else {
		return errors.Join(dirError(path, err), f.Close())
	}
	d.lock = f
	return nil
}

// release lets the folder go.
func (d *dataDir) release() error {
	if d.lock == nil {
		return nil
	}
	err := d.lock.Close()
	d.lock = nil
	if err != nil {
		return fmt.Errorf("close lock of data folder: %w", err)
	}
	return nil
}

func (d *dataDir) identity() (identity, error) {
	path := filepath.Join(d.path, identityFile)
	var id identity
	found, err := readSealed(path, &id)
	if err != nil {
		return identity{}, err
	}
	if found {
		if len(id.ID) != 36 {
			return identity{}, damaged(path, "the id is not a UUID")
		}
		return id, nil
	}
	if _, err := os.Stat(filepath.Join(d.path, catalogFile)); err == nil {
		return identity{}, damaged(path, "the file is missing but there is a catalog")
	}
	id = identity{ID: newUUID(), Created: time.Now().UTC().Truncate(time.Second)}
	return id, writeSealed(path, id)
}

func damaged(path, detail string) error {
	return &DataDirError{Path: path, Reason: ErrDirDamaged, Detail: detail, Advice: "run weft doctor on the folder, or restore the file from a copy"}
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

// maxSealed bounds a file of the node that is read whole.
const maxSealed = 64 << 20

// readSealed reads a file that writeSealed wrote; found is false if there is none. Errors are *DataDirError.
func readSealed(path string, out any) (found bool, err error) {
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, dirError(path, err)
	}
	if st.Size() > maxSealed {
		return false, damaged(path, fmt.Sprintf("%d bytes long", st.Size()))
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return false, dirError(path, err)
	}
	var s sealed
	if err := json.Unmarshal(raw, &s); err != nil {
		return false, damaged(path, "not a JSON object of the form it was written in")
	}
	if s.Format > Format {
		return false, &DataDirError{Path: path, Reason: ErrDirNewer, Detail: fmt.Sprintf("format %d, this program reads up to %d", s.Format, Format),
			Advice: "use the version of weft that wrote it, or a later one"}
	}
	if s.Format < 1 || s.Checksum != checksum(s.Content) {
		return false, damaged(path, "the checksum does not match")
	}
	if err := json.Unmarshal(s.Content, out, json.RejectUnknownMembers(true)); err != nil {
		return false, damaged(path, "the content is not what this format holds")
	}
	return true, nil
}

func checksum(b []byte) string { return fmt.Sprintf("%016x", xxh3.Hash(b)) }

// writeSealed replaces a file of the node in one step: after a crash there is either the old or the new one. Errors are
// *DataDirError.
func writeSealed(path string, content any) error {
	body, err := json.Marshal(content)
	if err != nil {
		return fmt.Errorf("encode %s: %w", filepath.Base(path), err)
	}
	raw, err := json.Marshal(sealed{Format: Format, Checksum: checksum(body), Content: body})
	if err != nil {
		return fmt.Errorf("encode %s: %w", filepath.Base(path), err)
	}
	if err := replaceFile(path, append(raw, '\n')); err != nil {
		return dirError(path, err)
	}
	return nil
}

// replaceFile writes a temporary file, syncs it, renames it over path and syncs the folder.
func replaceFile(path string, b []byte) (err error) {
	tmp := path + ".tmp"
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	if err := os.Rename(tmp, path); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return syncDir(filepath.Dir(path))
}

// syncDir makes the names in a folder durable.
func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	err = d.Sync()
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	return err
}
