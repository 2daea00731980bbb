package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weft-search/weft/internal/client"
)

// topologyCmd shows the shard map of a cluster and changes it.
type topologyCmd struct {
	Show         topologyShow     `cmd:"" default:"withargs" help:"Print the shard map and what each member says."`
	AddGroup     addGroup         `cmd:"" help:"Add a shard group; documents move there with rebalance."`
	RemoveGroup  removeGroup      `cmd:"" help:"Remove the last group, which must hold no documents any more."`
	AddMember    addMember        `cmd:"" help:"Add a member to a group; repair gives it the documents."`
	RemoveMember removeMember     `cmd:"" help:"Remove a member from its group."`
	Accept       acceptMember     `cmd:"" help:"Say that what a member has counts, where no member of its shard holds the documents for certain."`
	Rebalance    rebalanceCluster `cmd:"" help:"Move documents to the groups that own them."`
	Repair       repairCluster    `cmd:"" help:"Make the members of each group equal to their primary."`
	Jobs         listJobs         `cmd:"" help:"List the jobs of the cluster."`
	Pause        pauseJob         `cmd:"" help:"Pause a job."`
	Resume       resumeJob        `cmd:"" help:"Go on with a job that was paused."`
	Cancel       cancelJob        `cmd:"" help:"Give a job up."`
}

// Help is shown below the usage line.
func (*topologyCmd) Help() string {
	return `Calls a broker (--url). The shard map can be changed where coordinators keep it in a store (--store of the broker); where the members
keep it, --shards of the brokers says who they are, and accept is the only change.

Examples:
  weft topology
  weft topology add-group 10.0.0.7:7702 10.0.0.8:7702
  weft topology rebalance
  weft topology repair`
}

type topologyShow struct{}

// Run prints the map.
func (*topologyShow) Run(ctx context.Context, glob *globals, io *IO) error {
	return withClient(glob, func(c *client.Client) error {
		t, err := c.Topology(ctx)
		if err != nil {
			return err
		}
		return printTopology(io, t)
	})
}

// withClient runs fn with a client of the server that --url names.
func withClient(glob *globals, fn func(c *client.Client) error) error {
	c, err := glob.client(client.Options{})
	if err != nil {
		return err
	}
	defer c.CloseIdle()
	err = fn(c)
	if p, ok := errors.AsType[*client.Problem](err); ok && p.Code == "not_found" {
		return fmt.Errorf("the server at %s is no coordinator: it has no shard map. `weft broker` and `weft dev` are coordinators", c.URL())
	}
	if err != nil {
		return explain(c, err)
	}
	return nil
}

func printTopology(io *IO, t *client.Topology) error {
	var b strings.Builder
	fmt.Fprintf(&b, "epoch %d, kept by the %s\n", t.Epoch, t.Source)
	for _, g := range t.Groups {
		what := ""
		if !g.Visible {
			what = ", holds nothing that is searched"
		}
		fmt.Fprintf(&b, "shard %d%s\n", g.Shard, what)
		for i, m := range g.Members {
			role, state := "replica", "ready"
			if i == 0 {
				role = "primary"
			}
			if !m.Ready {
				state = cmp.Or(m.Detail, m.Reason)
			}
			if m.Behind {
				state += ", behind"
			}
			if m.Suspect != "" {
				state += " (not read from: " + m.Suspect + ")"
			}
			if n := m.Refuses.Documents; n > 0 {
				state += fmt.Sprintf(", refuses %s", counted(int64(n), "document", "documents"))
			}
			fmt.Fprintf(&b, "  %-7s  %s  %s  epoch %d  %s\n", role, m.Address, state, m.Epoch, m.Node)
		}
	}
	fmt.Fprintf(&b, "map %s\n", t.Map)
	_, err := io.Stdout.Write([]byte(b.String()))
	return err
}

func changeTopology(ctx context.Context, glob *globals, io *IO, ch client.TopologyChange) error {
	return withClient(glob, func(c *client.Client) error {
		t, err := c.ChangeTopology(ctx, ch)
		if err != nil {
			return err
		}
		return printTopology(io, t)
	})
}

// joining says how members are added.
type joining struct {
	Force bool `help:"Add it although it does not answer; repairs and rebalances wait for it then."`
}

type addGroup struct {
	Members []string `arg:"" help:"Addresses of the members, the primary first."`
	joining
}

// Run adds the group.
func (a *addGroup) Run(ctx context.Context, glob *globals, io *IO) error {
	return changeTopology(ctx, glob, io, client.TopologyChange{Action: "add_group", Members: a.Members, Force: a.Force})
}

type removeGroup struct{}

// Run removes the group.
func (*removeGroup) Run(ctx context.Context, glob *globals, io *IO) error {
	return changeTopology(ctx, glob, io, client.TopologyChange{Action: "remove_group"})
}

type addMember struct {
	Shard  int    `arg:"" help:"Ordinal of the group, from 0."`
	Member string `arg:"" help:"Address of the new member."`
	joining
}

// Run adds the member.
func (a *addMember) Run(ctx context.Context, glob *globals, io *IO) error {
	return changeTopology(ctx, glob, io, client.TopologyChange{Action: "add_member", Group: a.Shard, Member: a.Member, Force: a.Force})
}

type removeMember struct {
	Member string `arg:"" help:"Address of the member."`
}

// Help is shown below the usage line.
func (*removeMember) Help() string {
	return `It is refused while none of the other members holds the documents of the group for certain: with the member the documents would go. Repair first;
where the member is gone for good, say before which of the others counts (weft topology accept --force).`
}

// Run removes the member.
func (r *removeMember) Run(ctx context.Context, glob *globals, io *IO) error {
	return changeTopology(ctx, glob, io, client.TopologyChange{Action: "remove_member", Member: r.Member})
}

type acceptMember struct {
	Member string `arg:"" help:"Address of the member."`
	Force  bool   `help:"Also where others hold the documents of the shard and do not answer: they are given up, and what they have is lost."`
}

// Help is shown below the usage line.
func (*acceptMember) Help() string {
	return `A shard all of whose members have another data folder than before, or an older one, is not read from, and counts as failed. If the
folders cannot be brought back, this says that what one of its members has now is the shard from now on. The other members are made equal to it.
Where the only member that holds the documents does not answer, and its machine is gone for good, --force says the same.`
}

// Run accepts the member.
func (a *acceptMember) Run(ctx context.Context, glob *globals, io *IO) error {
	return changeTopology(ctx, glob, io, client.TopologyChange{Action: "accept", Member: a.Member, Force: a.Force})
}

// follow says how the job of a command is waited for.
type follow struct {
	NoWait bool `help:"Print the job and end; it goes on."`
}

// jobLook is how often a job that is waited for is looked at.
const jobLook = 200 * time.Millisecond

// run starts a job and waits for its end.
func (f *follow) run(ctx context.Context, glob *globals, io *IO, start func(c *client.Client) (string, error)) error {
	return withClient(glob, func(c *client.Client) error {
		id, err := start(c)
		if err != nil {
			return err
		}
		if f.NoWait {
			_, err := fmt.Fprintf(io.Stdout, "job %s\n", id)
			return err
		}
		return endsAs(ctx, io, c, id, "done")
	})
}

// endsAs waits for a job and prints what became of it. That it is not the state that is wanted is an error.
func endsAs(ctx context.Context, io *IO, c *client.Client, id, state string) error {
	t := time.NewTicker(jobLook)
	defer t.Stop()
	told := ""
	for {
		j, err := c.Job(ctx, id)
		if err != nil && ctx.Err() == nil {
			return err
		}
		if err == nil && j.State == "running" && j.Error != told {
			// What it waits for: a job goes on when that is there.
			if told = j.Error; told != "" {
				say(io.Stderr, "job %s: %s\n", id, told)
			}
		}
		if err == nil && j.State != "running" {
			if err := printJob(io, j); err != nil {
				return err
			}
			if j.State != state {
				return fmt.Errorf("the job is %s", j.State)
			}
			return nil
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return fmt.Errorf("job %s goes on: %w", id, context.Cause(ctx))
		}
	}
}

func printJob(io *IO, j *client.Job) error {
	state := j.State
	if j.Cancelling {
		state += ", is cancelled"
	}
	line := fmt.Sprintf("job %s  %s  %s  %d of %d  ", j.ID, j.Kind, state, j.Done, j.Total)
	switch j.Kind {
	case "rebalance":
		line += fmt.Sprintf("%d moved  ", j.Moved)
	case "repair":
		line += fmt.Sprintf("%d copied, %d removed  ", j.Copied, j.Removed)
	}
	line += "started " + j.Started
	if j.Error != "" {
		line += "  " + j.Error
	}
	_, err := fmt.Fprintln(io.Stdout, line)
	return err
}

type rebalanceCluster struct {
	From int `help:"Over how many groups documents are placed; by default what the shard map says."`
	To   int `help:"Over how many they are to be; by default all groups of the map."`
	follow
}

// Run moves documents.
func (r *rebalanceCluster) Run(ctx context.Context, glob *globals, io *IO) error {
	if r.From < 0 || r.To < 0 {
		return usage(fmt.Errorf("--from and --to are numbers of groups"))
	}
	return r.run(ctx, glob, io, func(c *client.Client) (string, error) { return c.Rebalance(ctx, r.From, r.To) })
}

type repairCluster struct {
	Force bool `help:"Take each primary for right, also one that may have lost its documents: what it lacks is deleted at the others."`
	follow
}

// Help is shown below the usage line.
func (*repairCluster) Help() string {
	return `What a member lacks of its primary is copied, and what the primary does not have is deleted at it. A primary that came back with another disk, or that
is new, is given the documents of another member first. Where every member of a group is like that, it fails and says so: weft topology accept
says which of them counts.`
}

// Run repairs.
func (r *repairCluster) Run(ctx context.Context, glob *globals, io *IO) error {
	return r.run(ctx, glob, io, func(c *client.Client) (string, error) { return c.Repair(ctx, r.Force) })
}

type listJobs struct{}

// Run lists the jobs.
func (*listJobs) Run(ctx context.Context, glob *globals, io *IO) error {
	return withClient(glob, func(c *client.Client) error {
		list, err := c.Jobs(ctx)
		if err != nil {
			return err
		}
		for i := range list {
			if err := printJob(io, &list[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// jobID names a job.
type jobID struct {
	ID string `arg:"" help:"The job, as jobs lists it."`
}

func (j *jobID) act(ctx context.Context, glob *globals, io *IO, action string) error {
	return withClient(glob, func(c *client.Client) error {
		job, err := c.ChangeJob(ctx, j.ID, action)
		if err != nil {
			return err
		}
		return printJob(io, job)
	})
}

type pauseJob struct{ jobID }

// Run pauses the job.
func (p *pauseJob) Run(ctx context.Context, glob *globals, io *IO) error {
	return p.act(ctx, glob, io, "pause")
}

type resumeJob struct{ jobID }

// Run goes on with the job.
func (r *resumeJob) Run(ctx context.Context, glob *globals, io *IO) error {
	return r.act(ctx, glob, io, "resume")
}

type cancelJob struct {
	jobID
	NoWait bool          `help:"Print the job and end; what it has to undo is undone yet."`
	For    time.Duration `name:"wait-for" default:"2m" help:"How long to wait for its end."`
}

// Run gives the job up, and waits until it has ended: what it has copied is deleted first.
func (c *cancelJob) Run(ctx context.Context, glob *globals, io *IO) error {
	if c.NoWait {
		return c.act(ctx, glob, io, "cancel")
	}
	if c.For <= 0 {
		return usage(fmt.Errorf("--wait-for: %v is not above 0s", c.For))
	}
	return withClient(glob, func(cl *client.Client) error {
		if _, err := cl.ChangeJob(ctx, c.ID, "cancel"); err != nil {
			return err
		}
		ctx, stop := context.WithTimeoutCause(ctx, c.For, fmt.Errorf("it has not ended in %v", c.For))
		defer stop()
		return endsAs(ctx, io, cl, c.ID, "cancelled")
	})
}
