//go:build unix

package sidebyside

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/bench"
)

// BenchmarkSideBySide compares throughput, processor time and allocations, the bare handler and
// clients included. Clients send the next request once the last is answered. An operation is a
// round with a turn of each contender, beginning further on each time, so that other load slows all
// alike. The figures are medians of the turns.
//
//	go test -v -run AdmittedSideBySide -bench SideBySide -benchtime 20x ./test/sidebyside/http
func BenchmarkSideBySide(b *testing.B) {
	const many = 10_000
	rdb := startRedis(b)
	requests := clientRequests(many)
	for _, load := range []struct {
		name          string
		limit, status int
		requests      []*http.Request // nil: over connections of the loopback
	}{
		{"handler,admitted,1-address", plenty, 200, requests[:1]},
		{"handler,admitted,10k-addresses", plenty, 200, requests},
		{"handler,refused", one, 429, requests[:1]},
		{"server,admitted", plenty, 200, nil},
		{"server,refused", one, 429, nil},
	} {
		b.Run(load.name, func(b *testing.B) {
			var turns []*turn
			for _, c := range contenders {
				if c.promise == nil && load.status != http.StatusOK {
					continue
				}
				t := &turn{contender: c, redis: rdb, calls: 50_000}
				if load.requests == nil {
					t.calls = 5_000
				}
				if c.shared {
					t.calls = 1_000
				}
				h := c.make(b, settingOf(load.limit, time.Hour, rdb.Options().Addr))(hello)
				if load.requests == nil {
					addr := serve(b, h)
					for range clients {
						t.clients = append(t.clients, connect(b, addr))
					}
				} else {
					for i := range clients {
						t.clients = append(t.clients, caller(h, load.requests, i*len(load.requests)/clients))
					}
					ask := caller(h, load.requests, 0)
					for range load.requests { // so that no key is new
						_, _ = ask()
					}
				}
				t.take(b, load.status)
				t.costs = nil
				turns = append(turns, t)
			}
			round := 0
			for b.Loop() {
				for _, i := range bench.Order(round, len(turns)) {
					turns[i].take(b, load.status)
				}
				round++
			}
			b.ReportMetric(0, "ns/op") // a round means nothing
			b.Log("\n" + table(turns))
		})
	}
}

const clients = 16

// turn holds a contender's requests and costs.
type turn struct {
	contender
	clients []client
	calls   int
	redis   *redis.Client
	costs   []cost
}

// cost is of a request, and the second of them all.
type cost struct{ wall, cpu, redis, bytes, allocations float64 }

// take sends the requests. All but a few must have the status, to measure the right load.
func (t *turn) take(b *testing.B, status int) {
	var left, other atomic.Int64
	left.Store(int64(t.calls))
	var done sync.WaitGroup
	var before, after runtime.MemStats
	var inRedis time.Duration
	if t.shared {
		inRedis = redisTime(b, t.redis)
	}
	runtime.ReadMemStats(&before)
	cpu, began := cpuTime(), time.Now()
	for _, ask := range t.clients {
		done.Go(func() {
			const batch = 50 // so that the counter costs nothing
			for left.Add(-batch) >= 0 {
				for range batch {
					got, err := ask()
					if err != nil {
						b.Error(err)
						return
					}
					if got != status {
						other.Add(1)
					}
				}
			}
		})
	}
	done.Wait()
	wall, used := time.Since(began), cpuTime()-cpu
	runtime.ReadMemStats(&after)
	if t.shared {
		inRedis = redisTime(b, t.redis) - inRedis
	}
	if n := other.Load(); n > int64(t.calls)/100 {
		b.Errorf("%s answered %d of %d requests with another status than %d", t.name, n, t.calls, status)
	}
	n := float64(t.calls)
	t.costs = append(t.costs, cost{
		float64(wall) / n, float64(used) / n, float64(inRedis) / n,
		float64(after.TotalAlloc-before.TotalAlloc) / n, float64(after.Mallocs-before.Mallocs) / n,
	})
}

// table has a row for each contender, in Markdown, with ratios to "ral" in the same round.
func table(turns []*turn) string {
	var s strings.Builder
	s.WriteString("| | requests/s | processor time, ns | to ral's | Redis's, ns | bytes | allocations |\n|---|---|---|---|---|---|---|\n")
	base := turns[slices.IndexFunc(turns, func(t *turn) bool { return t.name == "ral" })]
	for _, t := range turns {
		median := func(figure func(i int, c cost) float64) float64 {
			var all []float64
			for i, c := range t.costs {
				all = append(all, figure(i, c))
			}
			slices.Sort(all)
			return all[len(all)/2]
		}
		fmt.Fprintf(&s, "| %s | %.0f | %.0f | %.2f | %.0f | %.0f | %.1f |\n", t.name,
			1e9/median(func(_ int, c cost) float64 { return c.wall }),
			median(func(_ int, c cost) float64 { return c.cpu }),
			median(func(i int, c cost) float64 { return c.cpu / base.costs[i].cpu }),
			median(func(_ int, c cost) float64 { return c.redis }),
			median(func(_ int, c cost) float64 { return c.bytes }),
			median(func(_ int, c cost) float64 { return c.allocations }))
	}
	return s.String()
}

// cpuTime returns the processor time of the process, clients and servers together.
func cpuTime() int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

func redisTime(tb testing.TB, client *redis.Client) (d time.Duration) {
	info, err := client.Info(context.Background(), "cpu").Result()
	require.NoError(tb, err)
	for line := range strings.Lines(info) {
		for _, name := range []string{"used_cpu_sys:", "used_cpu_user:"} {
			if value, found := strings.CutPrefix(line, name); found {
				seconds, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
				require.NoError(tb, err)
				d += time.Duration(seconds * float64(time.Second))
			}
		}
	}
	return d
}
