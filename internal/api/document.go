package api

import (
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/schema/jsondoc"
)

// DocProblem is the problem of a document that does not fit; its codes come from package jsondoc.
func DocProblem(e *jsondoc.DocError) *Problem {
	p := &Problem{Code: KnownCode(e.Code, InvalidDocument), Field: Clip(e.Field), Detail: ClipDetail(e.Reason)}
	if e.Position >= 0 {
		p.At(e.Position)
	}
	return p
}

// KnownCode is code if the table has it, else other.
func KnownCode(code string, other Code) Code {
	if _, ok := Codes[Code(code)]; ok {
		return Code(code)
	}
	return other
}

// AddInferred appends fields that documents brought to those of a reply.
func AddInferred(list []InferredField, found []jsondoc.Inference) []InferredField {
	for i := range found {
		f := &found[i].Field
		kind := f.Type.String()
		if f.Type == schema.Text {
			kind += "<" + f.Tokenizer + ">"
		}
		list = append(list, InferredField{Name: f.Name, Type: kind, From: found[i].From})
	}
	return list
}
