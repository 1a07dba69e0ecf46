//go:build unix

package main

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/single"
)

// BenchmarkSingle measures package single beside x/time/rate and an engine with one key:
//
//	go test -C cmd/ralbench -run '^$' -bench Single -cpu 1,2 -benchtime 300x
//
// With -cpu 2, two goroutines share a limit. Contenders take turns of a few milliseconds, so that
// disturbances meet all. The figures are medians over the turns: the process's processor time of a
// call in nanoseconds, and relative to x/time/rate. Package rate reads the clock for Allow and
// Wait, and gets time.Now() for the others.
func BenchmarkSingle(b *testing.B) {
	const count = 500_000_000 // a unit drains in 2 ns: the limit is never reached
	ample := policy.Must(policy.Funnel(count, count, time.Second))
	used := policy.Must(policy.Funnel(1, 1, 365*24*time.Hour))
	ctx := context.Background()
	limiters := func(p policy.Policy) (*single.Limiter, *engine.Engine[string]) {
		l := must.Get(single.New(p))
		e := must.Get(engine.New[string](engine.Config{Policy: p}))
		b.Cleanup(func() { require.NoError(b, e.Close()) })
		require.True(b, l.Choke())
		require.True(b, e.Choke("key"))
		return l, e
	}
	l, e := limiters(ample)
	lUsed, eUsed := limiters(used)
	x, xUsed := rate.NewLimiter(count, count), rate.NewLimiter(rate.Every(365*24*time.Hour), 1)
	require.True(b, xUsed.Allow())

	// Each call reports whether its answer is as expected.
	bench := func(name string, ofSingle, ofRate, ofEngine func() bool) {
		b.Run(name, func(b *testing.B) { takeTurns(b, ofSingle, ofRate, ofEngine) })
	}
	bench("Allow",
		func() bool { return l.Allow() },
		func() bool { return x.Allow() },
		func() bool { return e.Allow("key") })
	bench("Allow, refused",
		func() bool { return !lUsed.Allow() },
		func() bool { return !xUsed.Allow() },
		func() bool { return !eUsed.Allow("key") })
	bench("Take",
		func() bool { return l.Take(2).Allowed },
		func() bool { return x.AllowN(time.Now(), 2) },
		func() bool { return e.Take("key", 2).Allowed })
	bench("Wait",
		func() bool { return l.Wait(ctx, 1) == nil },
		func() bool { return x.WaitN(ctx, 1) == nil },
		func() bool { return e.Wait(ctx, "key", 1) == nil })
	bench("Reserve, Cancel",
		func() bool {
			r := l.Reserve(1, math.MaxInt64)
			r.Cancel()
			return r.Allowed
		},
		func() bool {
			r := x.ReserveN(time.Now(), 1)
			r.Cancel()
			return r.OK()
		},
		func() bool {
			r := e.Reserve("key", 1, math.MaxInt64)
			r.Cancel()
			return r.Allowed
		})
	bench("Peek",
		func() bool { return l.Peek(0).Allowed },
		func() bool { return x.Tokens() > 0 },
		func() bool { return e.Peek("key", 0).Allowed })
}

func takeTurns(b *testing.B, calls ...func() bool) {
	const turn = 100_000
	names := []string{"single", "rate", "engine"}
	took := make([][]float64, len(calls))
	callers := runtime.GOMAXPROCS(0)
	for b.Loop() {
		for i, call := range calls {
			before := processorTime(b)
			var done sync.WaitGroup
			for range callers {
				done.Go(func() {
					wrong := 0
					for range turn / callers {
						if !call() {
							wrong++
						}
					}
					if wrong > 0 {
						b.Errorf("%d answers of %s are wrong", wrong, names[i])
					}
				})
			}
			done.Wait()
			took[i] = append(took[i], float64(processorTime(b)-before)/turn)
		}
	}
	b.ReportMetric(0, "ns/op") // of all turns together
	median := func(values []float64) float64 {
		slices.Sort(values)
		return values[len(values)/2]
	}
	for i, name := range names {
		b.ReportMetric(median(took[i]), fmt.Sprintf("%s-ns", name))
	}
	b.ReportMetric(median(took[0])/median(took[1]), "single/rate")
	b.ReportMetric(median(took[0])/median(took[2]), "single/engine")
}
