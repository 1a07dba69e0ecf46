package fleetbench

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/fleet"
)

func TestProcessorTimeCountsForItsStep(t *testing.T) {
	spent := time.Duration(0)
	m := newMeter(func() (time.Duration, error) { return spent, nil })
	step := func(workload, contender string, cost time.Duration) {
		m.step(bench.Progress{Workload: workload, CPU: 2, Contender: contender})
		spent += cost
	}
	workload := func(name string, a, b [2]time.Duration) bench.WorkloadReport {
		step(name, "", 1000) // preparing
		step(name, "a", 2000)
		step(name, "b", 3000) // opening
		for i := range a {
			step(name, "a", a[i])
			step(name, "b", b[i])
		}
		pass := func(calls ...int64) (rounds []bench.Pass) {
			for _, n := range calls {
				rounds = append(rounds, bench.Pass{Calls: n})
			}
			return rounds
		}
		w := bench.WorkloadReport{Name: name, CPU: 2, Results: []bench.Result{
			{Contender: "a", Elsewhere: true, Rounds: pass(10, 20), LatencyRounds: []bench.Latency{{Calls: 10}, {Calls: 30}}},
			{Contender: "b", Elsewhere: true, Rounds: pass(5)}, // interrupted
			{Contender: "here", Rounds: pass(5)},
		}}
		m.ways["a"] = fleet.Stats{Exact: 1, Leased: 2, Local: 3, Open: 4, Closed: 5}
		m.finished(w)
		return w
	}
	report := bench.Report{Workloads: []bench.WorkloadReport{
		workload("one", [2]time.Duration{40, 100}, [2]time.Duration{7, 9}),
		workload("two", [2]time.Duration{80, 50}, [2]time.Duration{6, 0}),
	}}
	m.step(bench.Progress{Doing: "done"})
	assert.Equal(t, []Work{
		{Workload: "one", CPU: 2, Contender: "a", Rounds: []float64{2, 2}, RedisNsPerOp: bench.Spread{Median: 2, Min: 2, Max: 2}, ByRedis: 1, ByLease: 2, Neither: 12},
		{Workload: "one", CPU: 2, Contender: "b", Rounds: []float64{1.4}, RedisNsPerOp: bench.Spread{Median: 1.4, Min: 1.4, Max: 1.4}},
		{Workload: "two", CPU: 2, Contender: "a", Rounds: []float64{4, 1}, RedisNsPerOp: bench.Spread{Median: 2.5, Min: 1, Max: 4}, ByRedis: 1, ByLease: 2, Neither: 12},
		{Workload: "two", CPU: 2, Contender: "b", Rounds: []float64{1.2}, RedisNsPerOp: bench.Spread{Median: 1.2, Min: 1.2, Max: 1.2}},
	}, m.result(report))
	assert.NoError(t, m.fail)

	gone := errors.New("gone")
	m = newMeter(func() (time.Duration, error) { return 0, gone })
	m.step(bench.Progress{})
	assert.ErrorIs(t, m.fail, gone)
}
