package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// Topology is the shard map of a cluster and what its members say.
type Topology struct {
	Epoch  uint64          `json:"epoch"`
	Map    json.RawMessage `json:"map"`    // as coordinators agree on it
	Source string          `json:"source"` // store or members: who keeps the map
	Groups []Group         `json:"groups"`
}

// Group is one shard of a cluster.
type Group struct {
	Shard   int      `json:"shard"`
	Visible bool     `json:"visible"` // searches look there
	Members []Member `json:"members"`
}

// Member is a node that holds a shard.
type Member struct {
	Address string `json:"address"`
	Ready   bool   `json:"ready"`
	Node    string `json:"node"`
	Epoch   uint64 `json:"epoch"`   // of the shard map that it has been given
	Behind  bool   `json:"behind"`  // it has missed writes
	Reason  string `json:"reason"`  // why it is not ready: the code of a problem
	Detail  string `json:"detail"`  // the same in words
	Suspect string `json:"suspect"` // why it is not read from though it may be ready
	// Refuses is what it does not take of the writes that it missed.
	Refuses struct {
		Documents int `json:"documents"`
	} `json:"refuses"`
}

// Job is work that a cluster does in the background.
type Job struct {
	ID      string `json:"id"`
	Kind    string `json:"kind"`
	State   string `json:"state"` // running, paused, done, failed or cancelled
	Done    uint64 `json:"done"`
	Total   uint64 `json:"total"`
	Moved   uint64 `json:"moved"`   // of a rebalance: documents that have come to groups that are to own them
	Copied  uint64 `json:"copied"`  // of a repair: documents that were put at members
	Removed uint64 `json:"removed"` // of a repair: documents that were deleted at members
	Started string `json:"started"`
	Error   string `json:"error"` // why it failed, or what it waits for
	// Cancelling says that it was cancelled, and undoes what it has done before it ends.
	Cancelling bool `json:"cancelling"`
	// FailedAddresses are the members that it waits for; of a repair, those that it could not make equal.
	FailedAddresses []string `json:"failed_addresses"`
}

// Topology returns the shard map.
func (c *Client) Topology(ctx context.Context) (*Topology, error) {
	var out Topology
	return &out, c.call(ctx, http.MethodGet, "/_topology", nil, "", nil, &out)
}

// TopologyChange is one change of the shard map.
type TopologyChange struct {
	Action  string   // add_group, remove_group, add_member, remove_member or accept
	Members []string // of add_group, the primary first
	Group   int      // of add_member
	Member  string   // of add_member, remove_member and accept
	Epoch   uint64   // of the map that is to be changed; 0: whatever it is
	// Force says, of add_group and add_member, that a new member need not answer; of accept, that those are given up which hold the documents of
	// the group and do not answer.
	Force bool
}

// ChangeTopology changes the shard map and returns the new one.
func (c *Client) ChangeTopology(ctx context.Context, ch TopologyChange) (*Topology, error) {
	p := url.Values{"action": {ch.Action}}
	switch ch.Action {
	case "add_group":
		p.Set("members", strings.Join(ch.Members, ","))
	case "add_member":
		p.Set("group", strconv.Itoa(ch.Group))
		p.Set("member", ch.Member)
	case "remove_member", "accept":
		p.Set("member", ch.Member)
	}
	if ch.Force {
		p.Set("force", "true")
	}
	if ch.Epoch > 0 {
		p.Set("epoch", strconv.FormatUint(ch.Epoch, 10))
	}
	var out Topology
	return &out, c.call(ctx, http.MethodPost, "/_topology", p, "", nil, &out)
}

// Rebalance moves documents from as many groups as they are placed over to another number; 0 is what the map says. It returns the job,
// which goes on.
func (c *Client) Rebalance(ctx context.Context, from, to int) (job string, err error) {
	p := url.Values{"wait": {"false"}}
	if from > 0 {
		p.Set("from", strconv.Itoa(from))
	}
	if to > 0 {
		p.Set("to", strconv.Itoa(to))
	}
	return c.startJob(ctx, "/_rebalance", p)
}

// Repair makes the members of each group equal to its first; with force also to one that may have lost its documents. It returns the job, which
// goes on.
func (c *Client) Repair(ctx context.Context, force bool) (job string, err error) {
	p := url.Values{"wait": {"false"}}
	if force {
		p.Set("force", "true")
	}
	return c.startJob(ctx, "/_repair", p)
}

func (c *Client) startJob(ctx context.Context, path string, p url.Values) (string, error) {
	var out struct {
		Job string `json:"job"`
	}
	err := c.call(ctx, http.MethodPost, path, p, "", nil, &out)
	return out.Job, err
}

// Jobs lists the jobs of a cluster.
func (c *Client) Jobs(ctx context.Context) ([]Job, error) {
	var out struct {
		Jobs []Job `json:"jobs"`
	}
	err := c.call(ctx, http.MethodGet, "/_jobs", nil, "", nil, &out)
	return out.Jobs, err
}

// Job returns one job.
func (c *Client) Job(ctx context.Context, id string) (*Job, error) {
	var out Job
	return &out, c.call(ctx, http.MethodGet, "/_jobs/"+url.PathEscape(id), nil, "", nil, &out)
}

// ChangeJob pauses, resumes or cancels a job.
func (c *Client) ChangeJob(ctx context.Context, id, action string) (*Job, error) {
	var out Job
	return &out, c.call(ctx, http.MethodPost, "/_jobs/"+url.PathEscape(id), url.Values{"action": {action}}, "", nil, &out)
}
