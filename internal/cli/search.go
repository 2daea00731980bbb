package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weft-search/weft/internal/client"
)

type searchCmd struct {
	Query         []string      `arg:"" help:"The query; several words are joined. '*' finds every document."`
	JSON          bool          `help:"Print the server's reply as it is."`
	Limit         int           `short:"n" default:"10" help:"Hits to print."`
	Offset        int           `default:"0" help:"Hits to leave out first."`
	DefaultOp     string        `enum:"or,and" default:"or" help:"What stands between bare words: or, and."`
	DefaultFields []string      `placeholder:"FIELD" help:"Fields that terms without a field search."`
	Fields        []string      `placeholder:"FIELD" help:"Members of the documents to return."`
	TrackTotal    string        `default:"exact" help:"How the matches are counted: exact, none, or a number from which a lower bound will do."`
	Timeout       time.Duration `default:"0s" help:"Time the server may take; 0s for no limit."`
	AllowPartial  bool          `help:"Print what was found when the time is over, instead of an error."`
	Color         string        `enum:"auto,always,never" default:"auto" help:"Mark what was found: auto (on a terminal), always, never."`
}

// Help is shown below the usage line.
func (*searchCmd) Help() string {
	return `The query language: words, AND OR NOT + -, parentheses, "a phrase"~2, field:word, prefix*, boost^2, [a TO b], {a TO b},
field:>=5, _exists_:field. Quote it for the shell; a query that begins with '-' goes behind '--'.

Examples:
  weft search 'graceful shutdown'
  weft search --index movies -n 5 'title:"blade runner" OR (genre:noir AND year:[1940 TO 1960])'
  weft search --json --fields id,title -- '-year:1979'`
}

// checkTrackTotal refuses what the server would refuse.
func checkTrackTotal(s string) error {
	if s == "exact" || s == "none" {
		return nil
	}
	if _, err := strconv.ParseUint(s, 10, 32); err != nil {
		return usage(fmt.Errorf("--track-total: %q is not exact, none or a number", s))
	}
	return nil
}

// Run searches and prints.
func (s *searchCmd) Run(ctx context.Context, glob *globals, io *IO) error {
	if s.Limit < 0 || s.Offset < 0 || s.Timeout < 0 {
		return usage(errors.New("--limit, --offset and --timeout cannot be negative"))
	}
	if s.Timeout > 0 && s.Timeout < time.Millisecond {
		return usage(fmt.Errorf("--timeout: %v is below the millisecond that the server counts in", s.Timeout))
	}
	if err := checkTrackTotal(s.TrackTotal); err != nil {
		return err
	}
	c, err := glob.client(client.Options{})
	if err != nil {
		return err
	}
	defer c.CloseIdle()
	q := strings.Join(s.Query, " ")
	req := client.Search{
		Index: glob.Index, Q: q, Limit: s.Limit, Offset: s.Offset, DefaultFields: s.DefaultFields, Fields: s.Fields,
		TimeoutMS: s.Timeout.Milliseconds(), AllowPartial: s.AllowPartial,
	}
	if s.DefaultOp != "or" {
		req.DefaultOp = s.DefaultOp
	}
	if s.TrackTotal != "exact" {
		req.TrackTotal = s.TrackTotal
	}
	res, err := c.Search(ctx, req)
	if err != nil {
		return explain(c, pointAt(q, err))
	}
	if s.JSON {
		_, err := fmt.Fprintf(io.Stdout, "%s\n", strings.TrimSuffix(string(res.Raw), "\n"))
		return err
	}
	color := s.Color == "always"
	if s.Color == "auto" && isTerminal(io.Stdout) {
		_, off := io.LookupEnv("NO_COLOR") // https://no-color.org
		color = !off
	}
	p := printer{w: io.Stdout, offset: s.Offset, color: color, marks: newMarks(ctx, c, glob.Index, q)}
	p.print(res)
	return p.err
}

// pointAt shows the place of a query that the server could not read.
func pointAt(q string, err error) error {
	p, ok := err.(*client.Problem)
	if !ok || p.Position == nil || *p.Position < 0 || *p.Position > len(q) || strings.ContainsAny(q, "\n\t") {
		return err
	}
	at := len([]rune(q[:*p.Position]))
	return fmt.Errorf("%w\n  %s\n  %s^", err, q, strings.Repeat(" ", at))
}

// thousands writes a number with a comma at each thousand.
func thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// counted is a number with the word that it asks for.
func counted(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return thousands(n) + " " + many
}
