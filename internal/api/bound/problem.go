package bound

import (
	"errors"
	"fmt"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/shard/exec"
)

// parameterCodes are codes of the engine that are about a parameter, not about a field of the index.
var parameterCodes = map[string]api.Code{"too_many_filters": api.QueryLimit, "too_many_sort_keys": api.QueryLimit, "invalid_after": api.InvalidCursor}

// EngineCode is the code for callers of a code of the engine.
func EngineCode(code string) api.Code {
	if c, ok := parameterCodes[code]; ok {
		return c
	}
	if _, ok := api.Codes[api.Code(code)]; ok {
		return api.Code(code)
	}
	return api.InvalidQuery
}

// EngineProblem is the problem of an *exec.QueryError; nil for any other error.
func EngineProblem(err error) *api.Problem {
	e, ok := errors.AsType[*exec.QueryError](err)
	if !ok {
		return nil
	}
	p := &api.Problem{Code: EngineCode(e.Code), Field: api.Clip(e.Field), Detail: api.ClipDetail(e.Reason)}
	if _, param := parameterCodes[e.Code]; param {
		p.Detail = e.Field + ": " + p.Detail
	} else if e.Field != "" {
		p.Detail = fmt.Sprintf("field %q: %s", api.Clip(e.Field), p.Detail)
	}
	if e.Limit > 0 {
		p.Within(e.Limit)
	}
	return p
}
