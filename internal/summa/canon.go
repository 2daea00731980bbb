package summa

import (
	"strconv"
	"strings"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/text"
)

// options are the options of one field on their way to canonical order.
type options struct {
	given []schema.Option
	out   []schema.Option
}

// get takes an option out of those given.
func (o *options) get(name string) (string, bool) {
	for i, g := range o.given {
		if g.Name == name {
			o.given = append(o.given[:i:i], o.given[i+1:]...)
			return g.Value, true
		}
	}
	return "", false
}

func (o *options) put(name, value string) {
	o.out = append(o.out, schema.Option{Name: name, Value: value})
}

// move puts an option if it was given and is not the default.
func (o *options) move(name, def string) {
	if v, ok := o.get(name); ok && (def == "" || v != def) {
		o.put(name, v)
	}
}

// say puts an option whether it was given or not.
func (o *options) say(name, def string) {
	v, ok := o.get(name)
	if !ok {
		v = def
	}
	o.put(name, v)
}

// kind takes the kind of a vector index, in either spelling.
func (o *options) kind(def string) string {
	if v, ok := o.get("index"); ok {
		return v
	}
	for i, g := range o.given {
		if g.Value == "" {
			o.given = append(o.given[:i:i], o.given[i+1:]...)
			return g.Name
		}
	}
	return def
}

// canonical returns the field as GetIndexInfo prints it: everything that stands in indexed<…> is an option, in the order of the
// reference. It is for printing only.
func canonical(f schema.Field) schema.Field {
	switch {
	case f.Type == schema.SparseVector && f.Element == "":
		f.Element = "u32"
	case f.Type == schema.DenseVector && f.Element == "f32":
		f.Element = ""
	case f.Type == schema.DenseVector && f.Element == "u8":
		f.Element = "uint8"
	}
	if !f.Indexed {
		return f
	}
	o := options{given: append([]schema.Option(nil), f.Options...)}
	switch f.Type {
	case schema.Text:
		textOptions(&f, &o)
	case schema.DenseVector:
		denseOptions(&o)
	case schema.BinaryVector:
		binaryOptions(&o)
	case schema.SparseVector:
		sparseOptions(&o)
	}
	f.Options = append(o.out, o.given...)
	return f
}

// textOptions also says of a stored chunked field that it takes several values, which its attributes leave to be understood. Of one that is not stored
// the grammar of Summa has no word for it.
func textOptions(f *schema.Field, o *options) {
	if f.Chunked {
		o.put("chunked", "")
		f.Chunked = false
		f.Multi = f.Multi && f.Stored
	}
	if f.K1 != schema.DefaultK1 {
		o.put("k1", strconv.FormatFloat(float64(f.K1), 'f', -1, 32))
	}
	if f.B != schema.DefaultB {
		o.put("b", strconv.FormatFloat(float64(f.B), 'f', -1, 32))
	}
	f.K1, f.B = schema.DefaultK1, schema.DefaultB
	o.move("common_grams", "")
	switch f.Positions {
	case schema.Ordinals:
		o.put("ordinal", "")
	case schema.TokenPositions:
		o.put("token_position", "")
	case schema.FullPositions:
		o.put("positions", "")
	}
	f.Positions = schema.NoPositions
}

func denseOptions(o *options) {
	kind := o.kind("ivf_tq")
	o.put(kind, "")
	if kind == "tq" { // scans every code: nothing of what follows applies
		for _, name := range []string{"num_clusters", "nprobe", "routing", "soar"} {
			o.get(name)
		}
		return
	}
	clusters(o)
	if kind == "ivf_tq" {
		o.say("soar", "selective")
		return
	}
	o.move("soar", "off")
}

func clusters(o *options) {
	o.move("num_clusters", "")
	o.move("target_vectors", "")
	o.move("tree_levels", "")
	o.move("nprobe", "64")
	o.move("routing", "auto")
}

func binaryOptions(o *options) {
	o.put(o.kind("ivf"), "")
	clusters(o)
	o.move("prefix_bits", "")
	o.move("prefix_rerank", "")
	o.move("soar", "off")
}

var quantizations = map[string]string{"f16": "float16", "u8": "uint8", "u4": "uint4"}

func sparseOptions(o *options) {
	format, ok := o.get("format")
	if !ok {
		format = "bmp"
	}
	o.put("format", format)
	switch format {
	case "bmp":
		o.say("bmp_block_size", "32")
		o.say("bmp_grid_bits", "4")
		o.say("bmp_forward_index", "true")
	case "seismic":
		o.say("seismic_forward_compression", "true")
		o.say("seismic_postings", "4096")
		o.say("seismic_cluster_size", "64")
		o.say("seismic_summary_energy", "0.4")
	}
	o.move("dims", "")
	o.move("max_weight", "")
	o.move("doc_mass", "")
	if v, ok := o.get("quantization"); ok && v != "float32" && v != "f32" {
		if full := quantizations[v]; full != "" {
			v = full
		}
		o.put("quantization", v)
	}
	if v, ok := o.get("weight_threshold"); ok && strings.Trim(v, "0.") != "" {
		o.put("weight_threshold", v)
	}
	o.move("block_size", "128")
	o.move("pruning", "")
	o.move("min_terms", "4")
	if v, ok := o.get("query"); ok {
		o.put("query", sparseQuery(v))
	}
}

// sparseQuery puts the options of a sparse field's query<…> in order.
func sparseQuery(block string) string {
	q := options{given: blockOptions(block)}
	q.move("tokenizer", "")
	q.move("weighting", "one")
	if v, ok := q.get("weight_threshold"); ok && strings.Trim(v, "0.") != "" {
		q.put("weight_threshold", v)
	}
	q.move("max_dims", "")
	q.move("pruning", "")
	q.move("min_query_dims", "4")
	q.move("lsp_gamma", "")
	q.say("seismic_cut", "10")
	q.say("seismic_factor", "0.85")
	q.say("exhaustive", "false")
	all := append(q.out, q.given...)
	out := make([]string, len(all))
	for i, o := range all {
		out[i] = o.String()
	}
	return "<" + strings.Join(out, ", ") + ">"
}

// QueryOptions are the options of query<…> of a field by their names, the values as they are written; nil where the field has none.
func QueryOptions(f *schema.Field) map[string]string {
	for _, o := range f.Options {
		if o.Name != "query" {
			continue
		}
		out := map[string]string{}
		for _, one := range blockOptions(o.Value) {
			out[one.Name] = one.Value
		}
		return out
	}
	return nil
}

// blockOptions takes a block <a: b, c: d> in canonical spacing apart. Only quoted values hold commas.
func blockOptions(block string) []schema.Option {
	var out []schema.Option
	rest := strings.TrimSuffix(strings.TrimPrefix(block, "<"), ">")
	for rest != "" {
		name, value, _ := strings.Cut(rest, ": ")
		end := strings.Index(value, ", ")
		if strings.HasPrefix(value, `"`) {
			end = closing(value)
		}
		if end < 0 {
			end = len(value)
		}
		out = append(out, schema.Option{Name: name, Value: value[:end]})
		rest = strings.TrimPrefix(value[end:], ", ")
	}
	return out
}

// closing returns where a quoted text at the start of s ends.
func closing(s string) int {
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(s)
}

// TextFields describes the text fields of a schema, in its order.
func TextFields(s *schema.Schema) []*summapb.TextFieldInfo {
	var out []*summapb.TextFieldInfo
	for i := range s.Fields {
		f := &s.Fields[i]
		if f.Type != schema.Text {
			continue
		}
		info := &summapb.TextFieldInfo{Field: f.Name, Positions: f.Positions != schema.NoPositions, Chunked: f.Chunked}
		if a, err := text.Lookup(f.Tokenizer); err == nil {
			info.Lexical = a.Lexical()
			info.HintField, info.Variants = a.HintField(), a.Variants()
		}
		out = append(out, info)
	}
	return out
}
