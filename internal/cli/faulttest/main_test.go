package faulttest

import (
	"flag"
	"testing"
	"time"

	"github.com/weft-search/weft/internal/cli/proctest"
)

var (
	seedFlag  = flag.Uint64("faults.seed", 0, "seed of the choices of a run; 0: drawn, and printed")
	forFlag   = flag.Duration("faults.for", 0, "how long random faults go on; 0: every kind of fault once")
	clockFlag = flag.Bool("faults.clock", false, "turn wall clocks, too: builds weft with another package time, which takes a minute once")
)

// patience is how long a step may take on a slow machine.
const patience = 2 * time.Minute

func TestMain(m *testing.M) { proctest.Main(m) }
