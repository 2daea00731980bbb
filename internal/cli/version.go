package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"text/tabwriter"

	"github.com/go-json-experiment/json"
)

type versionCmd struct {
	JSON bool `help:"Print one JSON object."`
}

// versionInfo is what weft version prints.
type versionInfo struct {
	Version  string         `json:"version"`
	Revision string         `json:"revision,omitempty"`
	Go       string         `json:"go"`
	Platform string         `json:"platform"`
	Formats  []formatOfFile `json:"formats"`
}

// formatOfFile is a format on disk: the version that is written, and that it reads all from Oldest on.
type formatOfFile struct {
	Name   string `json:"name"`
	Writes int    `json:"writes"`
	Oldest int    `json:"oldest_read"`
}

// Help is shown below the usage line.
func (*versionCmd) Help() string {
	return "A program refuses a folder that a later format was written to, and names the format."
}

// Run prints the version.
func (v *versionCmd) Run(io *IO) error {
	info := versionOf(io.Version)
	if v.JSON {
		b, err := json.Marshal(info)
		if err != nil {
			return fmt.Errorf("encode version: %w", err)
		}
		_, err = fmt.Fprintf(io.Stdout, "%s\n", b)
		return err
	}
	tw := tabwriter.NewWriter(io.Stdout, 0, 0, 2, ' ', 0)
	say(tw, "weft\t%s\n", info.Version)
	if info.Revision != "" {
		say(tw, "revision\t%s\n", info.Revision)
	}
	say(tw, "go\t%s %s\n", info.Go, info.Platform)
	for _, f := range info.Formats {
		say(tw, "%s format\t%d (reads from %d)\n", f.Name, f.Writes, f.Oldest)
	}
	return tw.Flush()
}

// versionOf is the version that the program was built with, or what the module's build information says.
func versionOf(given string) versionInfo {
	info := versionInfo{Version: given, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, Formats: formats()}
	bi, ok := debug.ReadBuildInfo()
	if ok {
		if info.Version == "" {
			info.Version = bi.Main.Version
		}
		for _, s := range bi.Settings {
			if s.Key == "vcs.revision" {
				info.Revision = s.Value
			}
		}
	}
	if info.Version == "" {
		info.Version = "(devel)"
	}
	return info
}
