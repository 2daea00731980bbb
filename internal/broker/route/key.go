package route

import (
	"strconv"

	summapb "github.com/weft-search/weft/api/summa"
)

// AppendKey appends the bytes that a primary key is hashed by ("Placement and partitions"): text, bytes and JSON as they are, integers
// in decimal, floats in the shortest decimal without an exponent. false: the value routes nothing, because it is absent, empty or a
// vector.
func AppendKey(b []byte, v *summapb.FieldValue) ([]byte, bool) {
	n := len(b)
	switch v := v.GetValue().(type) {
	case *summapb.FieldValue_Text:
		b = append(b, v.Text...)
	case *summapb.FieldValue_BytesValue:
		b = append(b, v.BytesValue...)
	case *summapb.FieldValue_JsonValue:
		b = append(b, v.JsonValue...)
	case *summapb.FieldValue_U64:
		b = strconv.AppendUint(b, v.U64, 10)
	case *summapb.FieldValue_I64:
		b = strconv.AppendInt(b, v.I64, 10)
	case *summapb.FieldValue_F64:
		b = strconv.AppendFloat(b, v.F64, 'f', -1, 64)
	}
	return b, len(b) > n
}
