package coordinate

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	summapb "github.com/weft-search/weft/api/summa"
)

// Request is what each node is asked, encoded; stats, where not nil, are the encoded statistics of all of them. It is to be called once.
func (p *Plan) Request(stats []byte) ([]byte, error) {
	req := p.req
	req.Offset, req.Limit = 0, uint32(p.window)
	switch p.way {
	case byScore:
	case byFusion:
		p.fusion.Method = summapb.FusionMethod_FUSION_CANDIDATES
		req.IncludeRrfScores = false
		p.whole()
	case byFormula:
		rows := p.needed
		if rows == 0 {
			rows = maxExportRows
		}
		p.rows(max(rows, p.exported))
	case byRRFFormula:
		req.L1.Formula, req.L1.MissingValues = "0", nil
		req.IncludeRrfScores = true
		p.rows(maxExportRows)
		p.whole()
	}
	out, err := proto.MarshalOptions{Deterministic: true}.Marshal(req)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "failed to encode Protobuf message: %s", err)
	}
	p.req = nil
	if stats != nil {
		out = protowire.AppendTag(out, 9, protowire.BytesType)
		out = protowire.AppendBytes(out, stats)
	}
	return out, nil
}

// whole asks for everything that the branches nominate.
func (p *Plan) whole() {
	p.fusion.CandidateDepth = uint32(p.depth)
	p.req.Limit = uint32(p.depth * p.nominating)
	p.req.CandidateLimit = p.req.Limit
}

func (p *Plan) rows(n int) {
	if p.req.ScoreExport == nil {
		p.req.ScoreExport = &summapb.ScoreExport{}
	}
	p.req.ScoreExport.PassagesPerDocument = uint32(n)
}
