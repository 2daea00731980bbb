package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/alecthomas/kong"

	"github.com/weft-search/weft/internal/cli/doctor"
	"github.com/weft-search/weft/internal/vfs"
)

type doctorCmd struct {
	DataDir string `required:"" placeholder:"DIR" help:"Folder to check. No server may be using it."`
	Deep    bool   `help:"Look inside segments too: beyond checksums, whether lists, columns and sums agree. Takes about 20 s for each GB."`
	Repair  bool   `help:"After the check, say what is going to be done and do it."`
}

// Help is shown below the usage line.
func (*doctorCmd) Help() string {
	return `Reads every byte of the folder: the node's own files, and of each index the head, the manifest, the segments, the delete sets, the
schema and the log. Without --repair nothing is changed.

What a crash leaves behind (a torn end of the log, half-made files, objects that nothing names) is harmless: a start, or the merges after it,
deal with it. Damage is what a start would refuse. The exit code is 0 when there is no damage, or none any more; 1 when there is.

--repair cuts a torn log, removes what nothing names, and points a broken head at the newest whole version if the log still
has every write since. It never does what would lose something that was acknowledged; what it cannot mend, it names.

Examples:
  weft doctor --data-dir /var/lib/weft
  weft doctor --data-dir data --repair`
}

// Run checks and repairs.
func (d *doctorCmd) Run(ctx context.Context, io *IO) (err error) {
	if d.DataDir == "" {
		return usage(errors.New("--data-dir is empty"))
	}
	doc, err := doctor.Open(kong.ExpandPath(d.DataDir))
	if errors.Is(err, vfs.ErrLocked) {
		return fmt.Errorf("%w; stop it first", err)
	}
	if err != nil {
		return err
	}
	doc.Deep = d.Deep
	defer func() { err = errors.Join(err, doc.Close()) }()
	report, err := doc.Examine(ctx)
	if err != nil {
		return err
	}
	printReport(io.Stdout, report)
	if d.Repair && slices.ContainsFunc(report.Findings, func(f doctor.Finding) bool { return f.Remedy != "" }) {
		if report, err = repair(ctx, io.Stdout, doc, report); err != nil {
			return err
		}
	}
	if report.Damaged() > 0 {
		return errSaid
	}
	return nil
}

// repair does what the findings name, one after the other, says so before each, and looks again.
func repair(ctx context.Context, w io.Writer, doc *doctor.Doctor, report *doctor.Report) (*doctor.Report, error) {
	failed := false
	for _, f := range report.Findings {
		if f.Remedy == "" {
			continue
		}
		say(w, "\nrepairing %s: %s\n", f.Place, f.Remedy)
		if err := doc.Repair(ctx, f); err != nil {
			say(w, "  failed: %v\n", err)
			failed = true
			continue
		}
		say(w, "  done\n")
	}
	say(w, "\nafter the repair:\n")
	again, err := doc.Examine(ctx)
	if err != nil {
		return nil, err
	}
	printReport(w, again)
	if failed {
		return again, errSaid
	}
	return again, nil
}

// describe says what an index holds.
func describe(i doctor.Index) string {
	if !i.Made {
		return "named by the catalog and not made yet; a start makes it, empty"
	}
	log := "no log"
	if i.Log.Files > 0 {
		log = fmt.Sprintf("log of %s in %s, ", counted(i.Log.Size, "byte", "bytes"), counted(int64(i.Log.Files), "file", "files"))
		switch {
		case !i.LogRead:
			log += "not readable to its end"
		case i.Log.LastSeq < i.Log.FirstSeq:
			log += fmt.Sprintf("no records, the next is %d", i.Log.FirstSeq)
		case i.Log.LastSeq == i.Log.FirstSeq:
			log += fmt.Sprintf("record %d", i.Log.FirstSeq)
		default:
			log += fmt.Sprintf("records %d to %d", i.Log.FirstSeq, i.Log.LastSeq)
		}
	}
	if i.Version == 0 {
		return "no version can be read; " + log
	}
	return fmt.Sprintf("version %d, %s in %s, %s in %s; %s", i.Version,
		counted(int64(i.Docs), "document", "documents"), counted(int64(i.Segments), "segment", "segments"),
		counted(i.Bytes, "byte", "bytes"), counted(int64(i.Objects), "object", "objects"), log)
}

func printReport(w io.Writer, r *doctor.Report) {
	for _, i := range r.Indexes {
		say(w, "index %s: %s\n", clean(i.Name), describe(i))
	}
	repairable := 0
	for _, f := range r.Findings {
		say(w, "%s: %s: %s\n", f.Kind, f.Place, clean(f.What))
		switch {
		case f.Remedy != "":
			say(w, "  repair: %s\n", f.Remedy)
			repairable++
		case f.Advice != "":
			say(w, "  no repair: %s\n", f.Advice)
		}
	}
	damaged := r.Damaged()
	switch {
	case len(r.Findings) == 0:
		say(w, "no damage, nothing left over\n")
	case repairable == 0:
		say(w, "%d damaged, %d left over; nothing of it can be repaired here\n", damaged, len(r.Findings)-damaged)
	default:
		say(w, "%d damaged, %d left over; %d can be repaired with --repair\n", damaged, len(r.Findings)-damaged, repairable)
	}
}
