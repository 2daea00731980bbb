package frame

import (
	"context"
	"time"
)

// Pool keeps a Client for each address that is in use. Its fields are set before the first request and not changed after it.
type Pool struct {
	// New makes the client of an address; &Client{Addr: addr} by default.
	New func(addr string) *Client
	// Unused is how long a client without requests is kept; 5 min.
	Unused time.Duration
}

// Do sends a request to addr as Client.Do does.
func (p *Pool) Do(ctx context.Context, addr string, request []byte, o Options) ([]byte, error) {
	return nil, &Error{Addr: addr, Op: OpWait, Cause: ErrClientClosed}
}

// Close closes the clients as Client.Close does. Requests fail from then on.
func (p *Pool) Close() error { return nil }

// Stats adds up the counts of the clients, those that were closed since included.
func (p *Pool) Stats() ClientStats { return ClientStats{} }
