package bound

import (
	"slices"
	"strconv"
	"strings"

	"github.com/weft-search/weft/internal/api/cursor"
)

// Notes are what a reply says in words, each once.
type Notes []string

// Add adds a note if it is not there.
func (n *Notes) Add(text string) {
	if !slices.Contains(*n, text) {
		*n = append(*n, text)
	}
}

// Texts of notes.
const (
	NotePartial   = "timeout_ms passed before the whole index was searched; hits and total speak of what was reached"
	NoteNoAggs    = "timeout_ms passed before the facets and aggregations were made; the reply has none"
	NoteIdleK     = "knn_k (k of knn) has no effect beside q: each of the two rankings is pool deep"
	NoteTruncated = "highlight: of a long text only the beginning was looked at"
)

// NoteLongCursor says that the cursor of the next page is too long.
var NoteLongCursor = "more hits follow, but a cursor to them would be longer than " + strconv.Itoa(cursor.MaxText) + " characters"

// AddIdle adds the note of the parameters of vector searches that were given without knn, if there are any.
func (n *Notes) AddIdle(idle []string) {
	if len(idle) == 0 {
		return
	}
	verb := "has"
	if len(idle) > 1 {
		verb = "have"
	}
	n.Add(strings.Join(idle, ", ") + " " + verb + " no effect without knn")
}
