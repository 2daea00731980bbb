// Package query holds the one query tree of weft, its limits, and the query-string parser that makes a tree.
//
// Every front translates into this tree. Text in it is as the caller wrote it: analysing text with a field's tokenizer is the
// work of whoever runs the query against an index, since only there the schema is known.
//
// Trees are immutable once made and safe for concurrent use.
package query

// Node is a query: one of the pointer types of this package.
type Node interface {
	node()
	// String prints the query in the query-string language (see Parse), canonically. Match and Filter, which the language does not
	// have, print as match(…) and #.
	String() string
}

type (
	// Term matches documents whose field holds every token of Text; the tokens' scores add up. With an empty Field it searches
	// the default fields and its score is the sum over them in schema order.
	Term struct{ Field, Text string }

	// Match matches documents whose field holds at least one (or with All every) token of Text. A repeated token weighs its count.
	Match struct {
		Field, Text string
		All         bool
		MaxTerms    int // keep only the rarest so many tokens by document frequency; 0 = no cap
	}

	// Phrase matches the tokens of Text at their distances; slop s lets every later token stand within ±s of its place.
	Phrase struct {
		Field, Text string
		Slop        uint32
	}

	// Prefix matches documents that hold a token beginning with Text (passed through the field's normalisation).
	Prefix struct{ Field, Text string }

	// Range matches documents with a column value between two bounds; a nil bound is open. It scores 1.
	Range struct {
		Field    string
		Min, Max *Bound
	}

	// Terms matches documents whose column holds one of the values exactly: text byte by byte as it was written, numbers and dates
	// by value, converted as the bounds of a Range are. It scores 1; without values it matches nothing.
	Terms struct {
		Field  string
		Values []string
	}

	// Exists matches documents that have a value for the field. It scores 1.
	Exists struct{ Field string }

	// All matches every document with score 1.
	All struct{}

	// Bool combines queries: every Must and Filter has to match, no MustNot may; with no Must and no Filter at least one Should
	// has to; with MustNot alone, every other document matches with score 0. The score is the sum over Must then Should in order;
	// Filter and MustNot add nothing.
	Bool struct{ Must, Should, MustNot, Filter []Node }

	// Given matches documents that whoever runs the query found in another way, with the scores that they got there: list List of those
	// that go with the request. No front makes one, and none can be sent.
	Given struct{ List int }

	// Words is a Match, a Term (All) or a Phrase whose text was analysed by whoever runs the query: it names the tokens of the index. No
	// front makes one, and none can be sent.
	Words struct {
		Field    string
		Words    []Word // at least one; of a Phrase in order, else each once
		All      bool
		MaxTerms int // as in Match
		Phrase   bool
		Slop     uint32
	}

	// Boost multiplies the score of Query, by any finite factor.
	Boost struct {
		Query  Node
		Factor float32
	}
)

// Word is a token of Words.
type Word struct {
	Text   string
	Times  int    // how often it counts; 0 is once
	Offset uint32 // its place in a phrase, from that of the first
}

// Bound is one end of a range. Value is text as the caller wrote it; it is converted to the field's type, exactly, when the query runs.
type Bound struct {
	Value     string
	Exclusive bool
}

func (*Term) node()   {}
func (*Match) node()  {}
func (*Phrase) node() {}
func (*Prefix) node() {}
func (*Range) node()  {}
func (*Terms) node()  {}
func (*Exists) node() {}
func (*All) node()    {}
func (*Bool) node()   {}
func (*Boost) node()  {}
func (*Given) node()  {}
func (*Words) node()  {}
