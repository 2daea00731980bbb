package leaf

import "context"

// Arrival is asked for the memory of a reply that is arriving over a wire, for so many bytes more of it, before they are taken off the wire.
// release gives them back, when the reply was taken apart or is let go. An error refuses the reply and fails the call; whoever refuses is to
// end the context of the call too, with the same cause, or the member counts as one that failed. It is called from several goroutines at once.
type Arrival func(bytes int64) (release func(), err error)

type arrivalKey struct{}

// WithArrival returns a context in which calls over a wire that tells the length of a reply before it comes ask for its memory.
func WithArrival(ctx context.Context, a Arrival) context.Context {
	return context.WithValue(ctx, arrivalKey{}, a)
}

// ArrivalOf is the Arrival of a context; nil if it has none.
func ArrivalOf(ctx context.Context) Arrival {
	a, _ := ctx.Value(arrivalKey{}).(Arrival)
	return a
}
