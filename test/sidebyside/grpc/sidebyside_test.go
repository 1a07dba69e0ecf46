package sidebyside

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/status"

	"github.com/ral-limiter/ral/bench"
)

const plenty = 1_000_000_000

const calls = 1000

// BenchmarkSideBySide compares the time and allocations of a call, the bare handler included. An
// operation is a round with a turn of each contender, beginning further on each time, so that other
// load slows all alike. The figures are medians of the turns.
func BenchmarkSideBySide(b *testing.B) {
	for _, refused := range []bool{false, true} {
		name, limit := "admitted", plenty
		if refused {
			name, limit = "refused", 1
		}
		b.Run(name, func(b *testing.B) {
			var turns []*turn
			for _, c := range contenders {
				if refused && c.name == "bare" {
					continue
				}
				t := &turn{contender: c, call: chained(c.make(b, limit)), ctx: from("203.0.113.9"), refused: refused}
				_, _ = t.call(t.ctx) // uses up the small limit
				t.take(b)
				t.costs = nil
				turns = append(turns, t)
			}
			round := 0
			for b.Loop() {
				for _, i := range bench.Order(round, len(turns)) {
					turns[i].take(b)
				}
				round++
			}
			b.ReportMetric(0, "ns/op") // a round means nothing
			b.Log("\n" + table(turns))
		})
	}
}

// turn holds a contender's calls and costs.
type turn struct {
	contender
	call    func(context.Context) (any, error)
	ctx     context.Context
	refused bool
	costs   []cost
}

type cost struct{ nanoseconds, allocations float64 }

// take makes the calls. All must have the answer that the benchmark is about.
func (t *turn) take(b *testing.B) {
	others := 0
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := time.Now()
	for range calls {
		if _, err := t.call(t.ctx); (err != nil) != t.refused {
			others++
		}
	}
	took := time.Since(began)
	runtime.ReadMemStats(&after)
	if others > 0 {
		b.Errorf("%s: %d of %d calls were answered otherwise", t.name, others, calls)
	}
	if _, err := t.call(t.ctx); t.refused && status.Code(err) != t.code {
		b.Errorf("%s refuses with %v", t.name, err)
	}
	t.costs = append(t.costs, cost{float64(took) / calls, float64(after.Mallocs-before.Mallocs) / calls})
}

func table(turns []*turn) string {
	var s strings.Builder
	s.WriteString("| | ns | allocations |\n|---|---|---|\n")
	for _, t := range turns {
		median := func(of func(cost) float64) float64 {
			var all []float64
			for _, c := range t.costs {
				all = append(all, of(c))
			}
			slices.Sort(all)
			return all[len(all)/2]
		}
		fmt.Fprintf(&s, "| %s | %.0f | %.1f |\n", t.name,
			median(func(c cost) float64 { return c.nanoseconds }), median(func(c cost) float64 { return c.allocations }))
	}
	return s.String()
}
