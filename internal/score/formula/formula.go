// Package formula compiles and evaluates the L1 formulas of a coordinated search (formula_v1).
package formula

// Limits of a formula.
const (
	MaxBytes  = 4096
	MaxTokens = 256
	MaxDepth  = 32
)

// BlockRows is the most rows that one Batch holds.
const BlockRows = 128

// RRF is the name of the variable that stands for the reciprocal rank score; no branch can have it.
const RRF = "rrf"

// Error says why a formula was refused and where.
type Error struct {
	Position int // byte offset into the formula
	Msg      string
}

// Error implements error.
func (e *Error) Error() string { return e.Msg }

// NonFiniteError says that a formula gave a score that is no finite binary32.
type NonFiniteError struct{ Row int }

// Error implements error.
func (e *NonFiniteError) Error() string {
	return "L1 formula produced a non-finite score (domain error or overflow)"
}

// Program is a compiled formula: immutable, safe for concurrent use.
type Program struct{ names []string }

// Compile compiles a formula. Errors are *Error.
func Compile(src string) (*Program, error) { return nil, &Error{Msg: "is being built"} }

// Variables returns the names of the variables in order of first use. They number the columns of a Batch.
func (p *Program) Variables() []string { return p.names }

// Batch holds up to BlockRows rows of one program's variables and the memory to evaluate them.
type Batch struct{}

// NewBatch returns a Batch whose absent cells have the values of missing, else 0.
func (p *Program) NewBatch(missing map[string]float64) (*Batch, error) { return &Batch{}, nil }

// Start begins a block of rows (1 to BlockRows), all cells absent.
func (b *Batch) Start(rows int) {}

// Set sets the cell of a variable in a row.
func (b *Batch) Set(variable, row int, v float64) {}

// Eval puts the scores of the rows into dst. Errors are *NonFiniteError.
func (b *Batch) Eval(dst []float32) error { return nil }
