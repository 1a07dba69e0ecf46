package fleet

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/fleet/internal/redistest"
	"github.com/ral-limiter/ral/policy"
)

func scripts(t testing.TB, redis *redistest.Server) (n int64) {
	t.Helper()
	reply := redis.Do(t, "INFO", "commandstats")
	text, err := reply.ToString()
	require.NoError(t, err)
	for _, found := range regexp.MustCompile(`cmdstat_eval(?:sha)?:calls=(\d+)`).FindAllStringSubmatch(text, -1) {
		calls, err := strconv.ParseInt(found[1], 10, 64)
		require.NoError(t, err)
		n += calls
	}
	return n
}

// letPass has the share of an unused key let n units pass.
func letPass(l *Limiter, key string, n int64) bool {
	l.local.Learn(key, 0, policy.Instant(time.Now().Sub(l.config.Epoch))) //nolint:staticcheck // it judges no time, as time.Since would
	return l.local.Take(key, n, 0).Allowed
}

// Promise: Charges after an outage are few scripts.
func TestChargingIsBatched(t *testing.T) {
	const keys = 2000
	redis := redistest.Start(t, redistest.Options{})
	inBubbleOf(t, redis, func(t *testing.T, line *redistest.Line) {
		c := over(line, policy.Must(policy.FixedWindow(1000, time.Hour)))
		l := open(t, c)
		before := scripts(t, redis)
		for i := range keys {
			require.True(t, letPass(l, strconv.Itoa(i), int64(i%3)+1))
		}
		units := uint64(0)
		for i := range keys {
			units += uint64(i%3) + 1
		}
		eventually(t, func() bool { return l.Stats().Charged == units }, "all is charged")
		ran := scripts(t, redis) - before
		require.GreaterOrEqual(t, ran, int64(keys/chargeBatch))
		require.Less(t, ran, int64(keys/10), "beats are among them, and what Redis did not know")
		for i := range 3 {
			require.EqualValues(t, 1000-i-1, take(t, l, strconv.Itoa(i), 0).Remaining)
		}
		time.Sleep(2 * beat)
		require.Equal(t, units, l.Stats().Charged, "once")
	})
}

// BenchmarkCharge charges 100,000 keys: without calls; beside 16 callers of another server, of
// which it knows nothing, so at full speed; and beside its own. It reports its time, Redis's
// processor time, and the median and 99th percentile of calls, beside two seconds before and after.
func BenchmarkCharge(b *testing.B) {
	const keys = 100_000
	for _, c := range []struct {
		name    string
		callers int
		paced   bool
	}{{"no calls", 0, false}, {"calls of another server", 16, false}, {"calls", 16, true}} {
		callers, paced := c.callers, c.paced
		b.Run(c.name, func(b *testing.B) {
			redis, err := redistest.Open(redistest.Options{})
			require.NoError(b, err)
			defer redis.Close()
			c := at(redis.Addr(), policy.Must(policy.FixedWindow(1_000_000, time.Hour)))
			other := open(b, c)
			var took, worked, calm, charging []time.Duration
			for range b.N {
				c.Name = name()
				l := open(b, c)
				asked := other
				if paced {
					asked = l
				}
				var mu sync.Mutex
				into := &calm
				var stop atomic.Bool
				var all sync.WaitGroup
				for i := range callers {
					all.Go(func() {
						for !stop.Load() {
							begun := time.Now()
							if _, err := asked.Take(b.Context(), "call "+strconv.Itoa(i), 1); err != nil {
								b.Error(err)
							}
							d := time.Since(begun)
							mu.Lock()
							*into = append(*into, d)
							mu.Unlock()
							time.Sleep(time.Millisecond)
						}
					})
				}
				if callers > 0 {
					time.Sleep(2 * time.Second)
				}
				mu.Lock()
				into = new([]time.Duration)
				mu.Unlock()
				for i := range keys {
					letPass(l, strconv.Itoa(i), 1)
				}
				mu.Lock()
				into = &charging
				mu.Unlock()
				used := redis.ProcessorTime(b)
				begun := time.Now()
				l.nudge()
				for l.Stats().Charged < keys {
					time.Sleep(time.Millisecond)
				}
				took = append(took, time.Since(begun))
				worked = append(worked, redis.ProcessorTime(b)-used)
				if callers > 0 {
					mu.Lock()
					into = &calm
					mu.Unlock()
					time.Sleep(2 * time.Second)
				}
				stop.Store(true)
				all.Wait()
				require.NoError(b, l.Close())
			}
			at := func(all []time.Duration, part float64) float64 {
				slices.Sort(all)
				return all[int(part*float64(len(all)-1))].Seconds()
			}
			b.ReportMetric(at(took, 0.5), "s")
			b.ReportMetric(at(worked, 0.5), "s-of-redis")
			if callers > 0 {
				for _, p := range []float64{0.5, 0.99} {
					b.ReportMetric(1e6*at(calm, p), fmt.Sprintf("µs-p%.0f-calm", 100*p))
					b.ReportMetric(1e6*at(charging, p), fmt.Sprintf("µs-p%.0f-while", 100*p))
				}
			}
		})
	}
}
