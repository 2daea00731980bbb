package cli

import (
	"context"
	"errors"

	"github.com/weft-search/weft/internal/client"
)

type commitCmd struct{}

// Help is shown below the usage line.
func (*commitCmd) Help() string {
	return `An index shows writes at once, or when it is committed: those that Summa clients make, and those whose JSON schema says
"visibility":"commit". Everything that was acknowledged before shows from the same moment on. On an index that shows writes at once
a commit does nothing.`
}

// Run commits the index.
func (*commitCmd) Run(ctx context.Context, glob *globals, io *IO) error {
	c, err := glob.client(client.Options{})
	if err != nil {
		return err
	}
	defer c.CloseIdle()
	done, err := c.Commit(ctx, glob.Index)
	if p, ok := errors.AsType[*client.Problem](err); ok && p.Code == "not_found" {
		return errors.New("the server has no commits: a cluster shows writes at once")
	}
	if err != nil {
		return explain(c, err)
	}
	if done.Visibility == "at_once" {
		say(io.Stdout, "%s shows writes at once: there was nothing to commit\n", glob.Index)
		return nil
	}
	say(io.Stdout, "%s shows %s\n", glob.Index, counted(int64(done.Docs), "document", "documents"))
	return nil
}
