package read

import (
	"context"
	"fmt"

	"github.com/weft-search/weft/internal/leaf"
)

// Room is asked for the memory of replies as they arrive from members, before they wait for those of other groups. All are called from
// several goroutines at once, and refuse by an error: the reply is let go then. A refusal is to end the context of the call, with its
// cause, or the group counts as one that failed. Replies that are not used, as those of a call that was hedged, are asked for too.
type Room struct {
	// Hits is asked for so many bytes more of hits and of what is shown of them.
	Hits func(ctx context.Context, bytes int64) error
	// Kept is asked for so many bytes more of neighbours, and of values one by one.
	Kept func(ctx context.Context, bytes int64) error
	// States is asked for so many bytes more of the states of aggregations.
	States func(ctx context.Context, bytes int64) error
}

type roomKey struct{}

// WithRoom returns a context in which the calls of a Reader ask for the memory of replies.
func WithRoom(ctx context.Context, room *Room) context.Context {
	return context.WithValue(ctx, roomKey{}, room)
}

// hold asks the room of ctx, if there is one, for the memory of a reply. That there is none says nothing about the member, and no other
// one is to be asked.
func hold(ctx context.Context, reply any) error {
	room, ok := ctx.Value(roomKey{}).(*Room)
	if !ok {
		return nil
	}
	var err error
	switch r := reply.(type) {
	case *leaf.SearchReply:
		err = room.Hits(ctx, hitBytes(r.Hits)+shownBytes(r.Shown))
	case *leaf.FetchReply:
		err = room.Hits(ctx, shownBytes(r.Docs))
	case *leaf.KNNReply:
		err = room.Kept(ctx, neighbourBytes(r.Hits))
	case *leaf.AggregateReply:
		if len(r.Values) > 0 {
			err = room.Kept(ctx, valueBytes(r.Values))
		}
		if err == nil && r.State != nil {
			err = room.States(ctx, int64(r.State.Bytes()))
		}
	}
	if err != nil {
		return fmt.Errorf("%w: no room for the reply: %w", context.Canceled, err)
	}
	return nil
}

const hitSize = 64 // bytes of a hit without what it points to

func hitBytes(hits []leaf.Hit) int64 {
	sum := int64(len(hits)) * hitSize
	for i := range hits {
		sum += int64(len(hits[i].ID))
		for k := range hits[i].Sort {
			sum += int64(len(hits[i].Sort[k].Text)) + hitSize
		}
	}
	return sum
}

const neighbourSize = 24 // bytes of a neighbour without its id

func neighbourBytes(hits []leaf.Neighbour) int64 {
	sum := int64(len(hits)) * neighbourSize
	for i := range hits {
		sum += int64(len(hits[i].ID))
	}
	return sum
}

// numberSize and textSize are the bytes of a number and of a text without its letters.
const (
	numberSize = 8
	textSize   = 16
)

func valueBytes(fields []leaf.FieldValues) (sum int64) {
	for i := range fields {
		f := &fields[i]
		sum += int64(len(f.Numbers))*numberSize + int64(len(f.Texts))*textSize
		for _, t := range f.Texts {
			sum += int64(len(t))
		}
	}
	return sum
}

func shownBytes(docs []leaf.Shown) (sum int64) {
	for i := range docs {
		d := &docs[i]
		sum += int64(len(d.Source) + len(d.Highlight) + len(d.Lexical) + len(d.Vector))
	}
	return sum
}
