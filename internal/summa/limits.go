package summa

// Bounds that no flag moves.
const (
	maxFusionBranches = 16
	maxFusionSlots    = 200_000 // candidates of all branches together
	maxFusionFilters  = 64
	maxBranchName     = 128 // bytes
	maxExportPassages = 65_536

	maxDeleteKeys     = 100_000
	maxDeleteBytes    = 8 << 20 // of all keys
	maxUpsertDocs     = 1_000
	maxUpsertBytes    = 32 << 20  // of the encoded request
	maxUpsertOneBytes = 200 << 20 // where it has one document
	maxDeleteKeyBytes = 65_536
)

// MostQueryDepth is the most that MaxQueryDepth can be: queries are worked on level by level, each of which takes some of a stack.
const MostQueryDepth = 4_000

// Limits bound what one request may ask of a node. A zero field means its default. Each stands for the flag of its name.
type Limits struct {
	MaxQueryDepth            int // levels of a query tree; 32
	MaxQueryNodes            int // nodes of a tree; 256
	MaxQueryClauses          int // clauses of all Booleans, boosts and fusions of a tree; 512
	MaxBooleanClauses        int // clauses of one Boolean of a search; 128
	MaxQueryTextBytes        int // texts, field names, hints and names of branches of a tree; 65536
	MaxFieldNameBytes        int // one field name; 255
	MaxIndexNameBytes        int // 255
	MaxDenseQueryDims        int // components of one vector; 65536
	MaxSparseQueryDims       int // pairs of one sparse vector; 4096
	MaxBinaryQueryBytes      int // bytes of one vector of bits; 256 KiB
	MaxTotalQueryVectorBytes int // vectors of a request, 4 bytes for each number; 1 MiB
	MaxFieldsToLoad          int // names; 64
	MaxFieldsToLoadNameBytes int // of all names; 16384
	MaxTextQueryTokens       int // tokens of one text after analysis; 256

	DefaultSearchLimit     int // what limit 0 means; 10
	MaxSearchLimit         int // 10000
	MaxSearchWindow        int // offset + limit; 50000
	MaxCandidateLimit      int // 50000
	MaxSearchHeldBytes     int // what a search holds beside its reply: candidates, and scores of their values; 256 MiB
	MaxSearchResponseBytes int // stored values of a reply, as held in memory and as encoded; 192 MiB
}

// WithDefaults returns the limits with every zero replaced by its default.
func (l Limits) WithDefaults() Limits {
	for _, d := range []struct {
		v   *int
		def int
	}{
		{&l.MaxQueryDepth, 32},
		{&l.MaxQueryNodes, 256},
		{&l.MaxQueryClauses, 512},
		{&l.MaxBooleanClauses, 128},
		{&l.MaxQueryTextBytes, 65_536},
		{&l.MaxFieldNameBytes, 255},
		{&l.MaxIndexNameBytes, 255},
		{&l.MaxDenseQueryDims, 65_536},
		{&l.MaxSparseQueryDims, 4_096},
		{&l.MaxBinaryQueryBytes, 256 << 10},
		{&l.MaxTotalQueryVectorBytes, 1 << 20},
		{&l.MaxFieldsToLoad, 64},
		{&l.MaxFieldsToLoadNameBytes, 16_384},
		{&l.MaxTextQueryTokens, 256},
		{&l.DefaultSearchLimit, 10},
		{&l.MaxSearchLimit, 10_000},
		{&l.MaxSearchWindow, 50_000},
		{&l.MaxCandidateLimit, 50_000},
		{&l.MaxSearchHeldBytes, 256 << 20},
		{&l.MaxSearchResponseBytes, 192 << 20},
	} {
		if *d.v <= 0 {
			*d.v = d.def
		}
	}
	return l
}

// CheckTokens refuses a text of a query that analysis made too many tokens of. kind is the query's, as in MatchQuery.
func (l Limits) CheckTokens(kind string, tokens int) error {
	if most := l.WithDefaults().MaxTextQueryTokens; tokens > most {
		return invalid("Invalid query: %s expands to %d tokens; maximum is %d", kind, tokens, most)
	}
	return nil
}

// CheckResponse refuses a reply whose stored values take, or are going to take, the given number of bytes. To be asked before they are
// copied.
func (l Limits) CheckResponse(bytes int) error {
	if most := l.WithDefaults().MaxSearchResponseBytes; bytes > most {
		return invalid("Search response exceeds the %d-byte hydration budget; request fewer hits or fields", most)
	}
	return nil
}
