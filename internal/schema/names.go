package schema

// typeNames holds the canonical SDL name of each type.
var typeNames = [...]string{
	Text: "text", U64: "u64", I64: "i64", F64: "f64", Date: "date", Bytes: "bytes", JSON: "json",
	DenseVector: "dense_vector", SparseVector: "sparse_vector", BinaryVector: "binary_dense_vector",
}

// typeAliases maps every SDL word for a type.
var typeAliases = map[string]Type{
	"text": Text, "string": Text, "str": Text,
	"u64": U64, "uint": U64, "unsigned": U64,
	"i64": I64, "int": I64, "integer": I64,
	"f64": F64, "float": F64, "double": F64,
	"date":  Date,
	"bytes": Bytes, "binary": Bytes, "blob": Bytes,
	"json":         JSON,
	"dense_vector": DenseVector, "vector": DenseVector,
	"sparse_vector":       SparseVector,
	"binary_dense_vector": BinaryVector, "binary_vector": BinaryVector,
}

// String returns the type's name in SDL.
func (t Type) String() string {
	if t >= Text && int(t) < len(typeNames) {
		return typeNames[t]
	}
	return "unknown"
}

// summaTypeName is the reference's own word for a type in its messages.
func summaTypeName(t Type) string {
	switch t {
	case Text:
		return "Text"
	case U64:
		return "U64"
	case I64:
		return "I64"
	case F64:
		return "F64"
	case Date:
		return "Date"
	case Bytes:
		return "Bytes"
	case JSON:
		return "Json"
	case DenseVector:
		return "DenseVector"
	case SparseVector:
		return "SparseVector"
	case BinaryVector:
		return "BinaryDenseVector"
	}
	return t.String()
}

var positionNames = [...]string{NoPositions: "none", Ordinals: "ordinal", TokenPositions: "token_position", FullPositions: "positions"}

var positionModes = map[string]PositionMode{"ordinal": Ordinals, "token_position": TokenPositions, "positions": FullPositions}

// indexKinds are the words that name a vector index.
var indexKinds = map[string]bool{"flat": true, "ivf_pq": true, "ivf_tq": true, "ivf": true, "scann": true, "tq": true}

// valueKind is the syntax of an option's value.
type valueKind uint8

const (
	valueUint    valueKind = iota
	valueDecimal           // digits, optionally a point and digits
	valueBool
	valueWord  // one of words
	valueQuote // a quoted string
	valueList  // [ "a", … ]
	valueBlock // <…>, for query
)

type optionRule struct {
	kind  valueKind
	words []string
}

// optionSyntax lists the options of indexed<…> that have no field of their own.
var optionSyntax = map[string]optionRule{
	"index":                       {valueWord, []string{"flat", "ivf_pq", "ivf_tq", "ivf", "scann", "tq"}},
	"num_clusters":                {kind: valueUint},
	"target_vectors":              {kind: valueUint},
	"tree_levels":                 {kind: valueUint},
	"nprobe":                      {kind: valueUint},
	"routing":                     {valueWord, []string{"auto", "flat", "two_level", "hnsw"}},
	"soar":                        {valueWord, []string{"selective", "full", "aggressive", "off"}},
	"m":                           {kind: valueUint},
	"ef_construction":             {kind: valueUint},
	"prefix_bits":                 {kind: valueUint},
	"prefix_rerank":               {kind: valueUint},
	"quantization":                {valueWord, []string{"float32", "float16", "uint8", "uint4", "f32", "f16", "u8", "u4"}},
	"weight_threshold":            {kind: valueDecimal},
	"pruning":                     {kind: valueDecimal},
	"min_terms":                   {kind: valueUint},
	"format":                      {valueWord, []string{"bmp", "maxscore", "seismic"}},
	"dims":                        {kind: valueUint},
	"doc_mass":                    {kind: valueDecimal},
	"max_weight":                  {kind: valueDecimal},
	"block_size":                  {kind: valueUint},
	"bmp_block_size":              {kind: valueUint},
	"bmp_grid_bits":               {kind: valueUint},
	"bmp_forward_index":           {kind: valueBool},
	"seismic_postings":            {kind: valueUint},
	"seismic_cluster_size":        {kind: valueUint},
	"seismic_summary_energy":      {kind: valueDecimal},
	"seismic_forward_compression": {kind: valueBool},
	"common_grams":                {kind: valueList},
	"query":                       {kind: valueBlock},
}

// querySyntax lists the options of query<…>.
var querySyntax = map[string]optionRule{
	"max_terms":        {kind: valueUint},
	"tokenizer":        {kind: valueQuote},
	"weighting":        {valueWord, []string{"one", "idf", "idf_file"}},
	"weight_threshold": {kind: valueDecimal},
	"max_dims":         {kind: valueUint},
	"pruning":          {kind: valueDecimal},
	"min_query_dims":   {kind: valueUint},
	"lsp_gamma":        {kind: valueUint},
	"seismic_cut":      {kind: valueUint},
	"seismic_factor":   {kind: valueDecimal},
	"exhaustive":       {kind: valueBool},
}
