package jobs

import "time"

// Kind is what a job does.
type Kind string

// Kinds.
const (
	Rebalance Kind = "rebalance"
	Repair    Kind = "repair"
)

// State is how far a job is.
type State string

// States.
const (
	Running   State = "running"
	Paused    State = "paused"
	Done      State = "done"
	Failed    State = "failed"
	Cancelled State = "cancelled"
)

// Job is one job as its callers see it.
type Job struct {
	ID      string    `json:"id"`
	Kind    Kind      `json:"kind"`
	State   State     `json:"state"`
	Done    uint64    `json:"done"`  // documents looked at
	Total   uint64    `json:"total"` // documents to look at, as far as it is known
	Moved   uint64    `json:"moved"` // of a rebalance: documents that have come to groups that are to own them; of a repair 0
	Copied  uint64    `json:"copied"`
	Removed uint64    `json:"removed"` // both of a repair: documents that were put and deleted at members, in groups that are through
	Started time.Time `json:"started"`
	Error   string    `json:"error"` // why it failed, or what it waits for
	// Cancelling says that it was cancelled, and undoes what it has done before it ends.
	Cancelling bool `json:"cancelling,omitempty"`
	// FailedAddresses are the members that it waits for; of a repair, those that it could not make equal so far.
	FailedAddresses []string `json:"failed_addresses"`
}

// RebalanceReply is what became of a rebalance.
type RebalanceReply struct {
	OK              bool   `json:"ok"`
	Moved           uint64 `json:"moved"`
	Deferred        uint64 `json:"deferred"`          // documents that were left where they were
	MissingAtSource uint64 `json:"missing_at_source"` // documents that were listed and gone when they were read
	Job             string `json:"job"`
	Error           string `json:"error,omitempty"` // where it is not OK: why it failed, or what it waits for, with the address
	// FailedAddresses are the members that it waits for, where it is not OK.
	FailedAddresses []string `json:"failed_addresses"`
}

// RepairReply is what became of a repair.
type RepairReply struct {
	OK              bool          `json:"ok"`
	Copied          uint64        `json:"copied"`
	Removed         uint64        `json:"removed"`
	Deferred        uint64        `json:"deferred"`
	Error           string        `json:"error,omitempty"` // where it is not OK: why, of the first group that failed, or what it waits for
	FailedAddresses []string      `json:"failed_addresses"`
	Groups          []GroupRepair `json:"groups"`
}

// GroupRepair is what became of one group.
type GroupRepair struct {
	Group   int      `json:"group"`
	Primary string   `json:"primary"`
	Copied  uint64   `json:"copied"`
	Removed uint64   `json:"removed"`
	Failed  []string `json:"failed"`
}
