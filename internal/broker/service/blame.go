package service

import (
	"time"

	"google.golang.org/grpc/status"
)

// blameEvery is how often the log names a node that does not honour what it is asked.
const blameEvery = time.Minute

// blame tells in the log which node a call was refused for: one that left out or contradicted what it was asked for, as programs of another
// version do. The refusal itself has the reference's text, which names no node, and an operator in the middle of a rollout has to know it. It
// may be called by many at once.
func (g *gathering) blame(part int, err error) {
	k := g.at[part]
	if k == nil {
		return
	}
	now, last := time.Now(), k.blamed.Load()
	if last != nil && now.Sub(*last) < blameEvery || !k.blamed.CompareAndSwap(last, &now) {
		return
	}
	g.b.cfg.Log.Warn("node does not honour what it is asked", "node", g.to[part].Node.ID, "shard", g.ix.Shards[part], "index", g.ix.Name,
		"error", status.Convert(err).Message())
}
