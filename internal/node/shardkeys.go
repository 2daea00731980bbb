package node

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/zeebo/xxh3"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/shard"
	"github.com/weft-search/weft/internal/vfs"
)

// Limits of what is remembered of loads with a key, for each index. Beyond them the oldest are forgotten.
const (
	maxLoadKeys      = 10_000
	maxLoadKeyBytes  = 16 << 20 // of keys and replies
	loadKeyAge       = 24 * time.Hour
	maxLoadReply     = 64 << 10 // of one reply; of a longer one fewer errors are listed
	loadKeySlack     = 1 << 20  // what the file may be longer than twice of what is remembered
	loadUnderWayWait = time.Second
)

// loadKeys remembers the loads of one index that bore a key, with what came of them, in a file beside the data of the index; FORMAT.md
// says what is in it. A load is remembered when its last document is durable. So a node that crashes between the two has the documents
// and not the key, and applies the load again when it is sent again.
//
// Nothing is read before the first load with a key. A file that cannot be written to costs what it is for, and nothing else: keys are then
// remembered until the node ends.
type loadKeys struct {
	fs   vfs.FS
	path string
	log  *slog.Logger
	now  func() time.Time     // the calendar
	up   func() time.Duration // how long the node runs: a clock that goes on when the calendar is set

	mu struct {
		sync.Mutex
		read   bool
		keys   map[string]*keptLoad
		order  []*keptLoad // oldest first
		bytes  int64       // of their records
		size   int64       // of the file
		broken bool        // the file has to be written anew before anything is appended: it is not there, or its end is not good
	}
}

// keptLoad is one remembered load.
type keptLoad struct {
	key   string
	taken int64  // when it ended, in milliseconds since the epoch
	reply []byte // JSON of a keptReply
	// until is when it is forgotten, by up: a calendar that is set forward must not have a load applied twice. Only how old it was when
	// the file was read is by the calendar.
	until time.Duration
}

// keptReply is what is kept of a reply.
type keptReply struct {
	OK                bool            `json:"ok"`
	Indexed           uint64          `json:"indexed"`
	Failed            uint64          `json:"failed,omitzero"`
	Duplicates        uint64          `json:"duplicates,omitzero"`
	DuplicatesAtLeast bool            `json:"duplicates_at_least,omitzero"`
	TookMicros        int64           `json:"took_us"`
	Errors            []keptFailure   `json:"errors,omitempty"`
	ErrorsOmitted     uint64          `json:"errors_omitted,omitzero"`
	Inferred          []keptInference `json:"inferred,omitempty"`
}

type keptFailure struct {
	Line   int    `json:"line"`
	ID     string `json:"id"`
	Code   string `json:"code"`
	Reason string `json:"reason"`
}

type keptInference struct {
	Name string `json:"name"`
	Type string `json:"type"`
	From string `json:"from"`
}

// LoadKeysVersion is the format of the files of load keys that this program writes.
const LoadKeysVersion = 1

// The file begins with a header: magic, version, and a checksum of the two. Records follow.
const (
	loadKeysFile   = "loads.keys"
	loadKeysMagic  = "WEFTKEYS"
	loadKeysHeader = len(loadKeysMagic) + 4 + 4
	loadKeyHead    = 4 + 8 // length and checksum of what follows
	loadKeyLeast   = 8 + 1 // time, and length of the key
)

func appendLoadKeysHeader(b []byte) []byte {
	from := len(b)
	b = append(b, loadKeysMagic...)
	b = binary.LittleEndian.AppendUint32(b, LoadKeysVersion)
	return binary.LittleEndian.AppendUint32(b, uint32(xxh3.Hash(b[from:])))
}

func (k *keptLoad) size() int64 { return int64(loadKeyHead + loadKeyLeast + len(k.key) + len(k.reply)) }

func (k *keptLoad) append(b []byte) []byte {
	from := len(b)
	b = append(b, make([]byte, loadKeyHead)...)
	b = binary.LittleEndian.AppendUint64(b, uint64(k.taken))
	b = append(b, byte(len(k.key)))
	b = append(b, k.key...)
	b = append(b, k.reply...)
	body := b[from+loadKeyHead:]
	binary.LittleEndian.PutUint32(b[from:], uint32(len(body)))
	binary.LittleEndian.PutUint64(b[from+4:], xxh3.Hash(body))
	return b
}

// errNotLoadKeys says that a file does not begin as one of load keys does.
var errNotLoadKeys = errors.New("it does not begin as a file of the keys of loads")

// parseLoadKeys reads a file. good is the length of what is well: what follows it was being written when the node ended, or is damaged.
// The replies are not looked into. A file of a later version is an error that matches shard.ErrNewerFormat.
func parseLoadKeys(b []byte) (loads []*keptLoad, good int, err error) {
	if len(b) < loadKeysHeader || string(b[:len(loadKeysMagic)]) != loadKeysMagic ||
		binary.LittleEndian.Uint32(b[loadKeysHeader-4:]) != uint32(xxh3.Hash(b[:loadKeysHeader-4])) {
		return nil, 0, errNotLoadKeys
	}
	if v := binary.LittleEndian.Uint32(b[len(loadKeysMagic):]); v != LoadKeysVersion {
		return nil, 0, &shard.FormatError{What: "the file of the keys of loads", Have: uint64(v), Max: LoadKeysVersion}
	}
	good = loadKeysHeader
	for {
		rest := b[good:]
		if len(rest) < loadKeyHead {
			return loads, good, nil
		}
		n := int64(binary.LittleEndian.Uint32(rest))
		if n < loadKeyLeast || n > loadKeyLeast+leaf.MaxBulkKey+maxLoadReply || n > int64(len(rest)-loadKeyHead) {
			return loads, good, nil
		}
		body := rest[loadKeyHead : loadKeyHead+n]
		key := int64(body[loadKeyLeast-1])
		if xxh3.Hash(body) != binary.LittleEndian.Uint64(rest[4:]) || key == 0 || key > leaf.MaxBulkKey || loadKeyLeast+key > n {
			return loads, good, nil
		}
		loads = append(loads, &keptLoad{
			taken: int64(binary.LittleEndian.Uint64(body)), key: string(body[loadKeyLeast : loadKeyLeast+key]), reply: bytes.Clone(body[loadKeyLeast+key:]),
		})
		good += loadKeyHead + int(n)
	}
}

// keepReply encodes a reply, with as many of its errors as there is room for.
func keepReply(r *api.BulkReply) ([]byte, error) {
	k := keptReply{
		OK: r.OK, Indexed: r.Indexed, Failed: r.Failed, Duplicates: r.Duplicates, DuplicatesAtLeast: r.DuplicatesAtLeast,
		TookMicros: r.TookMicros, ErrorsOmitted: r.ErrorsOmitted,
	}
	for _, e := range r.Errors {
		k.Errors = append(k.Errors, keptFailure(e))
	}
	for _, f := range r.Inferred {
		k.Inferred = append(k.Inferred, keptInference(f))
	}
	for {
		b, err := json.Marshal(k, jsontext.AllowInvalidUTF8(true)) // an id that was refused may be anything
		if err != nil || len(b) <= maxLoadReply {
			return b, err
		}
		// What was inferred is told by the schema, too.
		if len(k.Errors) == 0 {
			k.Inferred = nil
			continue
		}
		half := len(k.Errors) / 2
		k.ErrorsOmitted += uint64(len(k.Errors) - half)
		k.Errors = k.Errors[:half]
	}
}

// keptReplyOf decodes what keepReply encoded.
func keptReplyOf(b []byte) (*api.BulkReply, error) {
	var k keptReply
	if err := json.Unmarshal(b, &k, json.RejectUnknownMembers(true)); err != nil {
		return nil, fmt.Errorf("read a kept reply: %w", err)
	}
	r := &api.BulkReply{
		OK: k.OK, Indexed: k.Indexed, Failed: k.Failed, Duplicates: k.Duplicates, DuplicatesAtLeast: k.DuplicatesAtLeast,
		TookMicros: k.TookMicros, ErrorsOmitted: k.ErrorsOmitted, Shards: 1, Members: oneMember(),
	}
	for _, e := range k.Errors {
		r.Errors = append(r.Errors, api.DocFailure(e))
	}
	for _, f := range k.Inferred {
		r.Inferred = append(r.Inferred, api.InferredField(f))
	}
	return r, nil
}

// find returns what came of the load with the key, nil if none is remembered.
func (l *loadKeys) find(key string) (*api.BulkReply, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.readLocked(); err != nil {
		return nil, err
	}
	l.forgetLocked(0)
	k := l.mu.keys[key]
	if k == nil {
		return nil, nil
	}
	r, err := keptReplyOf(k.reply)
	if err != nil {
		l.log.Warn("a load with a key is forgotten", "file", l.path, "error", err)
		return nil, nil
	}
	return r, nil
}

// remember keeps what came of a load. The key is durable when it returns, unless the file cannot be written to, which is logged.
func (l *loadKeys) remember(key string, r *api.BulkReply) {
	reply, err := keepReply(r)
	if err != nil {
		l.log.Error("keep the reply of a load", "error", err)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.readLocked(); err != nil {
		l.log.Error("the key of a load is not remembered", "file", l.path, "error", err)
		return
	}
	k := &keptLoad{key: key, taken: l.now().UnixMilli(), reply: reply, until: l.up() + loadKeyAge}
	l.forgetLocked(k.size())
	l.addLocked(k)
	if err := l.writeLocked(k); err != nil {
		l.mu.broken = true
		l.log.Warn("the key of a load is remembered until the node ends only", "file", l.path, "error", err)
	}
}

func (l *loadKeys) addLocked(k *keptLoad) {
	if old := l.mu.keys[k.key]; old != nil {
		l.mu.bytes -= old.size()
		old.key = "" // it stays in the order until its turn
	}
	l.mu.keys[k.key] = k
	l.mu.order = append(l.mu.order, k)
	l.mu.bytes += k.size()
}

// forgetLocked forgets what is too old, and the oldest until there is room for one more of the size; 0 asks for none.
func (l *loadKeys) forgetLocked(size int64) {
	up := l.up()
	for len(l.mu.order) > 0 {
		k := l.mu.order[0]
		switch {
		case k.key == "":
		case k.until < up, size > 0 && (len(l.mu.keys) >= maxLoadKeys || l.mu.bytes+size > maxLoadKeyBytes):
			delete(l.mu.keys, k.key)
			l.mu.bytes -= k.size()
		default:
			return
		}
		l.mu.order[0] = nil
		l.mu.order = l.mu.order[1:]
	}
}

// readLocked reads the file, once.
func (l *loadKeys) readLocked() error {
	if l.mu.read {
		return nil
	}
	if err := l.sweep(); err != nil {
		return err
	}
	l.mu.keys, l.mu.order, l.mu.bytes = map[string]*keptLoad{}, nil, 0
	b, err := l.content()
	if errors.Is(err, fs.ErrNotExist) {
		l.mu.read, l.mu.broken = true, true
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", l.path, err)
	}
	loads, good, err := parseLoadKeys(b)
	switch {
	case errors.Is(err, shard.ErrNewerFormat):
		return fmt.Errorf("read %s: %w", l.path, err)
	case err != nil:
		l.log.Warn("the keys of earlier loads are forgotten", "file", l.path, "error", err)
	case good < len(b):
		l.log.Info("the end of a file of the keys of loads is cut off", "file", l.path, "bytes", len(b)-good)
	}
	now, up := l.now(), l.up()
	for _, k := range loads {
		age := now.Sub(time.UnixMilli(k.taken))
		k.until = up + loadKeyAge - min(max(age, 0), 2*loadKeyAge) // one from the future is as good as new
		l.forgetLocked(k.size())
		l.addLocked(k)
	}
	l.mu.read, l.mu.size, l.mu.broken = true, int64(good), good < len(b) || good == 0
	return nil
}

// content is what is in the file. One that is longer than the node ever writes is not read.
func (l *loadKeys) content() ([]byte, error) {
	st, err := l.fs.Stat(l.path)
	if err != nil {
		return nil, err
	}
	if st.Size > int64(loadKeysHeader)+2*maxLoadKeyBytes+2*loadKeySlack {
		return nil, nil // as if it were damaged
	}
	return vfs.ReadFile(l.fs, l.path)
}

// sweep removes what was half made when the node ended.
func (l *loadKeys) sweep() error {
	dir := path.Dir(l.path)
	list, err := l.fs.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("list %s: %w", dir, err)
	}
	for _, in := range list {
		if strings.HasPrefix(in.Name, loadKeysFile+".") && vfs.IsTemp(in.Name) {
			if err := l.fs.Remove(path.Join(dir, in.Name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("remove a half-made file: %w", err)
			}
		}
	}
	return nil
}

// writeLocked makes the newest load durable: at the end of the file, or in a new one where it has grown too long or its end is not good.
func (l *loadKeys) writeLocked(k *keptLoad) (err error) {
	if l.mu.broken || l.mu.size+k.size() > 2*l.mu.bytes+loadKeySlack {
		b := appendLoadKeysHeader(make([]byte, 0, int64(loadKeysHeader)+l.mu.bytes))
		for _, k := range l.mu.order {
			if k.key != "" {
				b = k.append(b)
			}
		}
		if err := vfs.WriteFile(l.fs, l.path, b); err != nil {
			return err
		}
		l.mu.size, l.mu.broken = int64(len(b)), false
		return nil
	}
	f, err := l.fs.Append(l.path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.Write(k.append(nil)); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	l.mu.size += k.size()
	return nil
}

// loadsUnderWay are the loads with a key that have begun and not ended, by index and key.
type loadsUnderWay struct {
	mu sync.Mutex
	m  map[[2]string]bool
}

// begin notes a load until end is called; it refuses one that is there.
func (u *loadsUnderWay) begin(index, key string) (end func(), prob *api.Problem) {
	u.mu.Lock()
	defer u.mu.Unlock()
	at := [2]string{index, key}
	if u.m[at] {
		p := api.NewProblem(api.LoadUnderWay, "a load with this key has begun and not ended yet")
		p.RetryAfterMS = loadUnderWayWait.Milliseconds()
		return nil, p
	}
	if u.m == nil {
		u.m = map[[2]string]bool{}
	}
	u.m[at] = true
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		delete(u.m, at)
	}, nil
}
