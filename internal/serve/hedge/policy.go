// Package hedge sends a call again, to another replica, when the first is slow or fails.
package hedge

import "time"

// PolicyOptions of a Policy. The zero value means the defaults.
type PolicyOptions struct {
	// Quantile of the live latencies after which a call is hedged, while there is budget. Default: 0.95 (Dean and Barroso).
	Quantile float64
	// MaxQuantile is used as the budget runs dry. Default: 0.999.
	MaxQuantile float64
	// Share is how many hedges are sent for each call, over all classes, at most. Default: 0.05. Negative: none.
	Share float64
	// Burst is how many hedges may be sent beyond Share at once. Default: 16.
	Burst int
	// RetryShare and RetryBurst bound retries after failures in the same way. Defaults: 0.2 and 32.
	RetryShare float64
	RetryBurst int
	// MaxAttempts is how many attempts of one call may be sent because of slowness, with the first. Default: 3.
	MaxAttempts int
	// MinSamples is how many calls of a class must be known before its quantile is used. Default: 64.
	MinSamples int
	// InitialDelay is the delay until then. Default 0: no hedge.
	InitialDelay time.Duration
	// MinDelay and MaxDelay bound the delay. Defaults: 1 ms and no upper bound.
	MinDelay, MaxDelay time.Duration
	// Window is how long a latency is remembered. Default: a minute.
	Window time.Duration
	// Refresh is how old a delay may be before it is taken anew from the latencies. Default: 100 ms.
	Refresh time.Duration
	// Untied leaves attempts of one call running when another one has begun.
	Untied bool
}

// Class is a kind of calls that take about as long and may be treated alike.
type Class struct {
	// Name is unique within a policy.
	Name string
	// Safe says that a call may run twice, at the same time or one after the other. Only safe calls are hedged.
	Safe bool
	// Retryable says whether a call that failed with err may be tried on another replica. nil: always if Safe, else never.
	Retryable func(err error) bool
}

// Policy decides for all classes together when calls are sent again.
type Policy struct{}

// NewPolicy returns a policy.
func NewPolicy(o PolicyOptions) *Policy { return &Policy{} }

// Calls is the live state of one class.
type Calls struct{}

// Calls returns the state of a class, made at the first use of its name.
func (p *Policy) Calls(c Class) *Calls { return &Calls{} }

// Stats are counters of a policy since it was made.
type Stats struct {
	Calls         uint64 // calls begun
	Hedges        uint64 // attempts sent because of slowness
	HedgesWon     uint64 // of these, those whose result was the answer
	HedgesDenied  uint64 // calls that had a hedge refused by the budget
	Retries       uint64 // attempts sent because of a failure
	RetriesDenied uint64 // calls that failed because the budget refused a retry
	Skipped       uint64 // attempts cancelled before they had begun
}

// Stats returns the counters.
func (p *Policy) Stats() Stats { return Stats{} }
