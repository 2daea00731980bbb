package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/weft-search/weft/internal/client"
)

type getCmd struct {
	ID     string `arg:"" help:"Id of the document."`
	Pretty bool   `help:"Break the document into lines; on a terminal it is in any case."`
}

// Help is shown below the usage line.
func (*getCmd) Help() string {
	return "Prints the document as it was given, as JSON. Exit code 1 when there is none."
}

// Run prints the document.
func (g *getCmd) Run(ctx context.Context, glob *globals, io *IO) error {
	c, err := glob.client(client.Options{})
	if err != nil {
		return err
	}
	defer c.CloseIdle()
	doc, err := c.Get(ctx, glob.Index, g.ID)
	if err != nil {
		return explain(c, err)
	}
	source := doc.Source
	if len(source) == 0 {
		return errors.New("the index keeps no sources")
	}
	if g.Pretty || isTerminal(io.Stdout) {
		if err := source.Indent(); err != nil {
			return fmt.Errorf("indent document: %w", err)
		}
	}
	_, err = fmt.Fprintf(io.Stdout, "%s\n", source)
	return err
}

// explain adds to an error of transport what is usually behind it.
func explain(c *client.Client, err error) error {
	var lost *client.TransportError
	if !errors.As(err, &lost) || errors.Is(err, context.Canceled) {
		return err
	}
	return fmt.Errorf("%w\nIs a server running at %s? `weft dev` starts one; --url names another", err, c.URL())
}
