package serve

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"
)

func TestBudget(t *testing.T) {
	now := time.Unix(1000, 0)
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		b     Budget
		above time.Duration // 0: none
		later time.Duration // when the call starts, after the level began
		end   time.Duration // 0: none
		want  time.Duration // of the call, after the level began
		start bool
	}{
		"zero, none above":          {b: Budget{}},
		"zero":                      {Budget{}, 100 * ms, 0, 100 * ms, 100 * ms, true},
		"reserve, none above":       {b: Budget{Reserve: 10 * ms, Share: 0.5}},
		"reserve":                   {Budget{Reserve: 10 * ms}, 100 * ms, 0, 100 * ms, 90 * ms, true},
		"reserve, later":            {Budget{Reserve: 10 * ms}, 100 * ms, 50 * ms, 100 * ms, 90 * ms, true},
		"share":                     {Budget{Reserve: 20 * ms, Share: 0.25}, 100 * ms, 0, 100 * ms, 20 * ms, true},
		"share, later":              {Budget{Reserve: 20 * ms, Share: 0.25}, 100 * ms, 40 * ms, 100 * ms, 50 * ms, true},
		"total, none above":         {Budget{Total: 50 * ms}, 0, 0, 50 * ms, 50 * ms, true},
		"total counts from begin":   {Budget{Total: 50 * ms}, 0, 30 * ms, 50 * ms, 50 * ms, true},
		"total above the caller's":  {Budget{Total: 500 * ms}, 100 * ms, 0, 100 * ms, 100 * ms, true},
		"total below the caller's":  {Budget{Total: 50 * ms, Reserve: 5 * ms}, 100 * ms, 0, 50 * ms, 45 * ms, true},
		"too late":                  {Budget{Reserve: 10 * ms}, 100 * ms, 95 * ms, 100 * ms, 90 * ms, false},
		"exactly the least":         {Budget{Reserve: 10 * ms}, 100 * ms, 89 * ms, 100 * ms, 90 * ms, true},
		"just below the least":      {Budget{Reserve: 10 * ms}, 100 * ms, 89*ms + 1, 100 * ms, 90 * ms, false},
		"least of its own":          {Budget{Least: 30 * ms}, 100 * ms, 71 * ms, 100 * ms, 100 * ms, false},
		"no least":                  {Budget{Least: -1}, 100 * ms, 100*ms - 1, 100 * ms, 100 * ms, true},
		"no least, no time":         {Budget{Least: -1}, 100 * ms, 100 * ms, 100 * ms, 100 * ms, false},
		"share above 1 is all":      {Budget{Share: 2}, 100 * ms, 0, 100 * ms, 100 * ms, true},
		"share of NaN is all":       {Budget{Share: math.NaN()}, 100 * ms, 0, 100 * ms, 100 * ms, true},
		"reserve below 0 is none":   {Budget{Reserve: -time.Hour}, 100 * ms, 0, 100 * ms, 100 * ms, true},
		"reserve of all time there": {Budget{Reserve: math.MaxInt64}, 100 * ms, 0, 100 * ms, 100*ms - math.MaxInt64, false},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			if c.above > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithDeadline(ctx, now.Add(c.above))
				defer cancel()
			}
			end, ok := c.b.End(ctx, now)
			if ok != (c.end > 0) || ok && end.Sub(now) != c.end {
				t.Fatalf("end %v, %v", end.Sub(now), ok)
			}
			if !ok {
				return
			}
			d, start := c.b.Deadline(end, now.Add(c.later))
			if got := d.Sub(now); got != c.want || start != c.start {
				t.Fatalf("deadline %v, %v; want %v, %v", got, start, c.want, c.start)
			}
			if start && d.After(end) {
				t.Fatal("later than the caller's")
			}
		})
	}
}

func TestBudgetValidate(t *testing.T) {
	for _, b := range []Budget{{}, {Share: 1}, {Share: 0.5, Reserve: 1, Total: -1, Least: -1}} {
		if err := b.Validate(); err != nil {
			t.Errorf("%+v: %v", b, err)
		}
	}
	for _, b := range []Budget{{Share: -1}, {Share: 1.1}, {Share: math.NaN()}, {Reserve: -1}} {
		if err := b.Validate(); err == nil {
			t.Errorf("%+v passes", b)
		}
	}
}

// TestBudgetNestedLevelsKeepTheirReserve has three levels that each take something for themselves, down to where nothing is left.
func TestBudgetNestedLevelsKeepTheirReserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			time time.Duration
			want []time.Duration // deadlines of the levels that are started
		}{
			{100 * time.Millisecond, []time.Duration{80 * time.Millisecond, 60 * time.Millisecond, 40 * time.Millisecond}},
			{61 * time.Millisecond, []time.Duration{41 * time.Millisecond, 21 * time.Millisecond, time.Millisecond}},
			{50 * time.Millisecond, []time.Duration{30 * time.Millisecond, 10 * time.Millisecond}},
			{20 * time.Millisecond, nil},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), c.time)
			begin := time.Now()
			var got []time.Duration
			var level func(ctx context.Context, depth int) (int, error)
			level = func(ctx context.Context, depth int) (int, error) {
				if depth == 3 {
					return 1, nil
				}
				g := Fan(ctx, 1, ScatterOptions{Budget: Budget{Reserve: 20 * time.Millisecond}}, func(ctx context.Context, _ int) (int, error) {
					d, _ := ctx.Deadline()
					got = append(got, d.Sub(begin))
					return level(ctx, depth+1)
				})
				return g.Results[0], g.Errs[0]
			}
			_, err := level(ctx, 0)
			cancel()
			if len(got) != len(c.want) || (OutcomeOf(err) == Answered) != (len(c.want) == 3) || err != nil && OutcomeOf(err) != TimedOut {
				t.Errorf("%v: levels %v, %v", c.time, got, err)
				continue
			}
			for i := range got {
				if got[i] != c.want[i] {
					t.Errorf("%v: levels %v, want %v", c.time, got, c.want)
				}
			}
			if time.Since(begin) != 0 {
				t.Errorf("%v: not at once", c.time)
			}
		}
	})
}
