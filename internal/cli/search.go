package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/weft-search/weft/internal/client"
)

type searchCmd struct {
	Query         []string      `arg:"" optional:"" help:"The query; several words are joined. '*', or none, finds every document."`
	JSON          bool          `help:"Print the server's reply as it is."`
	Body          string        `placeholder:"JSON" help:"A JSON body of POST /search, @FILE, or - for standard input. Flags are added to it and win."`
	Limit         int           `short:"n" default:"10" help:"Hits to print."`
	Offset        int           `default:"0" help:"Hits to leave out first."`
	After         string        `placeholder:"CURSOR" help:"Go on behind the page that printed this cursor."`
	Cursor        bool          `help:"Print the cursor of the page behind this one, for --after."`
	DefaultOp     string        `enum:"or,and" default:"or" help:"What stands between bare words: or, and."`
	DefaultFields []string      `placeholder:"FIELD" help:"Fields that terms without a field search."`
	Filter        []string      `sep:"none" placeholder:"QUERY" help:"Query that documents have to match and that adds nothing to their score; may be given several times."`
	Sort          []string      `placeholder:"KEY" help:"Order: score, id, FIELD or num:FIELD, each with :asc or :desc and :min or :max behind it."`
	Order         string        `enum:"asc,desc," default:"" placeholder:"asc|desc" help:"Direction of keys that name none: asc, desc."`
	Missing       string        `enum:"first,last," default:"" placeholder:"first|last" help:"Where documents without a value stand: first, last."`
	Fields        []string      `placeholder:"FIELD" help:"Members of the documents to return."`
	Facets        []string      `placeholder:"FIELD" help:"Count the values of these fields over all hits."`
	Aggs          string        `placeholder:"LIST" help:"Aggregations: name:kind(arguments), separated by commas."`
	KNN           string        `name:"knn" placeholder:"FIELD:V1,V2" help:"Nearest to this vector: FIELD:v1,v2,… or FIELD:index=weight,… or FIELD:0x… in hexadecimal."`
	KNNK          int           `name:"knn-k" default:"0" help:"Documents that --knn alone finds; 0 for the server's default."`
	KNNExact      bool          `name:"knn-exact" help:"Compare with every vector."`
	Fusion        string        `enum:"rrf,weighted," default:"" placeholder:"rrf|weighted" help:"How a query and --knn are ranked together: rrf, weighted."`
	Weights       string        `placeholder:"W,W" help:"Weights of the query and of --knn."`
	Pool          int           `default:"0" help:"Depth of the two rankings; 0 for the server's default."`
	Highlight     []string      `placeholder:"FIELD" help:"Print the parts of these fields that the query found; '*' for every field that it searches."`
	Explain       bool          `help:"Print how each score was made, and how the vector search was planned; for at most 100 hits."`
	Profile       bool          `help:"With --json: how each part of the index was searched."`
	TrackTotal    string        `default:"exact" help:"How the matches are counted: exact, none, or a number from which a lower bound will do."`
	Timeout       time.Duration `default:"0s" help:"Time the server may take; 0s for no limit."`
	AllowPartial  bool          `help:"Print what was found when the time is over, instead of an error."`
	DFS           bool          `name:"dfs" help:"Score with the statistics of all shards of a cluster, as one node with all documents would."`
	Color         string        `enum:"auto,always,never" default:"auto" help:"Mark what was found: auto (on a terminal), always, never."`
}

// Help is shown below the usage line.
func (*searchCmd) Help() string {
	return `The query language: words, AND OR NOT + -, parentheses, "a phrase"~2, field:word, prefix*, boost^2, [a TO b], {a TO b},
field:>=5, _exists_:field. Quote it for the shell; a query that begins with '-' goes behind '--'.

Examples:
  weft search 'graceful shutdown'
  weft search --index movies -n 5 'title:"blade runner" OR (genre:noir AND year:[1940 TO 1960])'
  weft search --index movies --filter genre:noir --sort year:desc,id --facets genre,country night
  weft search --index movies --aggs 'by_year:histogram(year,10),years:stats(year)' -n 0
  weft search --index movies --knn 'plot_vector:0.1,0.7,0.2' --explain 'space opera'
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
	if s.Limit < 0 || s.Offset < 0 || s.Timeout < 0 || s.KNNK < 0 || s.Pool < 0 {
		return usage(errors.New("--limit, --offset, --knn-k, --pool and --timeout cannot be negative"))
	}
	if len(s.Query) == 0 && s.KNN == "" && s.Body == "" && s.Aggs == "" && len(s.Filter)+len(s.Facets)+len(s.Sort) == 0 {
		return usage(errors.New("no query; '*' finds every document"))
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
	color := s.Color == "always"
	if s.Color == "auto" && isTerminal(io.Stdout) {
		_, off := io.LookupEnv("NO_COLOR") // https://no-color.org
		color = !off
	}
	q := strings.Join(s.Query, " ")
	body, index, err := s.body(glob, io, q)
	if err != nil {
		return err
	}
	if s.Profile && !s.JSON {
		say(io.Stderr, "--profile is printed with --json only\n")
	}
	res, err := c.SearchBody(ctx, index, body)
	if err != nil {
		return explain(c, s.pointAt(q, err))
	}
	if s.JSON {
		_, err := fmt.Fprintf(io.Stdout, "%s\n", strings.TrimSuffix(string(res.Raw), "\n"))
		return err
	}
	p := printer{
		w: io.Stdout, offset: s.Offset, color: color, marks: newMarks(ctx, c, glob.Index, q),
		facets: s.Facets, fragments: len(s.Highlight) > 0, paging: s.Cursor || s.After != "",
	}
	p.print(res)
	return p.err
}

// request is the search that the flags describe, as far as they do.
func (s *searchCmd) request(q string) client.Search {
	req := client.Search{
		Q: q, Limit: s.Limit, Offset: s.Offset, After: s.After, DefaultFields: s.DefaultFields, Fields: s.Fields, Filter: s.Filter,
		Sort: s.Sort, Order: s.Order, Missing: s.Missing, Facets: s.Facets, Aggs: s.Aggs,
		KNN: s.KNN, KNNK: s.KNNK, KNNExact: s.KNNExact, Fusion: s.Fusion, Weights: s.Weights, Pool: s.Pool,
		Explain: s.Explain, Profile: s.Profile, TimeoutMS: s.Timeout.Milliseconds(), AllowPartial: s.AllowPartial, DFS: s.DFS,
	}
	if s.DefaultOp != "or" {
		req.DefaultOp = s.DefaultOp
	}
	if s.TrackTotal != "exact" {
		req.TrackTotal = s.TrackTotal
	}
	if len(s.Highlight) > 0 {
		req.Highlight = &client.Highlight{Fields: s.Highlight, Pre: markOpen, Post: markClose, Escape: "none"}
	}
	return req
}

// mostBody is the longest body that a server takes.
const mostBody = 1 << 20

// body makes the JSON body of the flags and of --body, and tells the index to name in the URL.
func (s *searchCmd) body(glob *globals, std *IO, q string) (body []byte, index string, err error) {
	req := s.request(q)
	if body, err = req.Body(); err != nil || s.Body == "" {
		return body, glob.Index, err
	}
	given := []byte(s.Body)
	switch name, file := strings.CutPrefix(s.Body, "@"); {
	case s.Body == "-":
		given, err = readMost(std.Stdin)
	case file:
		given, err = readFile(name)
	}
	if err != nil {
		return nil, "", fmt.Errorf("--body: %w", err)
	}
	var members, flags map[string]jsontext.Value
	if err := json.Unmarshal(given, &members); err != nil {
		return nil, "", usage(fmt.Errorf("--body is no JSON object: %w", err))
	}
	if err := json.Unmarshal(body, &flags); err != nil {
		return nil, "", fmt.Errorf("merge --body: %w", err)
	}
	if _, has := members["limit"]; has && s.Limit == defaultHits {
		delete(flags, "limit")
	}
	maps.Copy(members, flags)
	// The body may name the index itself, which --index overrules.
	index = glob.Index
	if _, has := members["index"]; has {
		if index == "default" {
			index = ""
		} else {
			delete(members, "index")
		}
	}
	if body, err = json.Marshal(members, json.Deterministic(true)); err != nil {
		return nil, "", fmt.Errorf("merge --body: %w", err)
	}
	return body, index, nil
}

// defaultHits is the default of --limit.
const defaultHits = 10

func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	b, err := readMost(f)
	return b, errors.Join(err, f.Close())
}

// readMost reads up to what a server takes.
func readMost(r io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, mostBody+1))
	if err == nil && len(b) > mostBody {
		err = fmt.Errorf("it is longer than %d bytes", mostBody)
	}
	return b, err
}

// pointAt shows the place of the query or filter that the server could not read.
func (s *searchCmd) pointAt(q string, err error) error {
	p, ok := err.(*client.Problem)
	if !ok || p.Position == nil {
		return err
	}
	text, ok := s.faulty(q, p)
	if !ok || *p.Position < 0 || *p.Position > len(text) || strings.TrimSpace(text) == "" || strings.ContainsAny(text, "\n\t") {
		return err
	}
	at := len([]rune(text[:*p.Position]))
	return fmt.Errorf("%w\n  %s\n  %s^", err, text, strings.Repeat(" ", at))
}

// faulty is the text that the place of a problem counts in, if it is one of the flags': the query or a filter. Places of other
// parameters count in the body that was sent.
func (s *searchCmd) faulty(q string, p *client.Problem) (text string, ok bool) {
	if rest, of := strings.CutPrefix(p.Detail, "filter"); of {
		number, _, _ := strings.Cut(rest, ":")
		n, err := strconv.Atoi(strings.TrimSpace(number))
		switch {
		case p.Field == "aggs": // a filter of an aggregation
			return "", false
		case err == nil && n >= 1 && n <= len(s.Filter):
			return s.Filter[n-1], true
		case len(s.Filter) == 1:
			return s.Filter[0], true
		}
		return "", false
	}
	// What concerns a field of the index begins with its name; what concerns another parameter, with that of the parameter.
	return q, p.Field == "q" || strings.HasPrefix(p.Detail, "field ")
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
