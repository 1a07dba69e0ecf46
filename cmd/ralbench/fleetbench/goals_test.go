package fleetbench

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/bench"
)

// result makes so many calls in a second, by round, each with this processor time.
func result(name string, ns time.Duration, calls ...int64) bench.Result {
	r := bench.Result{Contender: name}
	for _, n := range calls {
		r.Rounds = append(r.Rounds, bench.Pass{Calls: n, Elapsed: time.Second, CPU: time.Duration(n) * ns})
	}
	return r
}

func measured() (bench.Report, Report) {
	return bench.Report{Workloads: []bench.WorkloadReport{{
			Name: Hot, CPU: 2, Results: []bench.Result{
				result(RedisRate, 9, 10, 20, 30), result(Exact, 9, 20, 41, 63), result(Leased, 30, 990, 2000, 2700),
				result(EngineTake, 10, 1980, 4400, 5400), result(EngineChoke, 10, 4000, 4000, 5400),
			},
		}, {
			Name: Refused, CPU: 2, Results: []bench.Result{result(RedisRate, 9, 10), result(Exact, 9, 10)},
		}}}, Report{
			Memory: []Memory{{Contender: RedisRate, Keys: 5, Usage: 100, Used: 150}, {Contender: Exact, Keys: 5, Usage: 80, Used: 150}},
			Shares: []Share{
				{Mode: ModeExact, Load: "even", Share: 1, Aim: 0.95, Limit: hundred},
				{Mode: ModeLeased, Load: "even", Share: 0.96, Aim: 0.95, Limit: hundred},
				{Mode: ModeLeased, Load: "skewed", Share: 0.89, Aim: 0.9, Limit: hundred},
			},
		}
}

func TestGoals(t *testing.T) {
	got := goals(measured())
	type goal struct {
		of, where string
		median    float64
		reached   bool
	}
	var figures []goal
	for _, g := range got {
		figures = append(figures, goal{g.Of, g.Where, g.Value.Median, g.Reached})
	}
	assert.Equal(t, []goal{ // what is refused has no goal
		{Exact, Hot, 2.05, true}, // of 2
		{Leased, Hot, 99, false}, // of 100
		{Leased, Hot, 2, true},   // engine Take
		{Leased, Hot, 2, true},   // engine Choke
		{Leased, Hot, 3, false},  // by processor time
		{Exact, "5 keys", 0.8, true},
		{Exact, "5 keys", 1, false}, // as much is not less
		{Leased, "even load, 100 per 1s", 0.96, true},
		{Leased, "skewed load, 100 per 1s", 0.89, false},
	}, figures)
	assert.Equal(t, bench.Spread{Median: 2.05, Min: 2, Max: 2.1}, got[0].Value, "each round by itself")
	assert.Empty(t, goals(bench.Report{}, Report{}), "nothing was measured")
	two := bench.Report{Workloads: []bench.WorkloadReport{{Name: Hot, CPU: 1}, {Name: Hot, CPU: 2}}}
	assert.Equal(t, "fleet-hot (GOMAXPROCS 2)", name(two, two.Workloads[1]))
}

func TestAuditsOfFleetModeAreFailures(t *testing.T) {
	report, more := measured()
	require.NoError(t, audit(report, more))

	of := &report.Workloads[1].Results[0]
	of.Audit = &bench.Audit{Over: 3}
	assert.NoError(t, audit(report, more), "a peer's own concern")

	of = &report.Workloads[1].Results[1]
	of.Audit = &bench.Audit{Over: 3, Admitted: 10}
	more.Shares[1].Over = 2
	err := audit(report, more)
	require.ErrorIs(t, err, ErrOver)
	assert.ErrorContains(t, err, "Ral fleet exact in fleet-refused: 3 too many of 10")
	assert.ErrorContains(t, err, "leased mode, even load: 2 more than allowed")
}

const ms = time.Millisecond

var perMs = bench.Limit{Capacity: 2, Count: 1, Per: ms}

func at(times ...time.Duration) (calls []span) {
	for _, t := range times {
		calls = append(calls, span{t, t})
	}
	return calls
}

// slowOver is over by looking at all windows.
func slowOver(l bench.Limit, passed []span) (worst int64) {
	for _, first := range passed {
		for _, last := range passed {
			if last.end < first.begin {
				continue
			}
			n := int64(0)
			for _, p := range passed {
				if p.begin >= first.begin && p.end <= last.end {
					n++
				}
			}
			worst = max(worst, n-l.Most(last.end-first.begin))
		}
	}
	return worst
}

func TestAuditFindsTheSameAsALookAtAllWindows(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	found := 0
	for range 3000 {
		limit := bench.Limit{Capacity: 1 + random.Int64N(4), Count: 1 + random.Int64N(5), Per: time.Duration(1 + random.IntN(9))}
		var passed []span
		for range random.IntN(30) {
			begin := time.Duration(random.IntN(40))
			passed = append(passed, span{begin, begin + time.Duration(random.IntN(6))})
		}
		want := slowOver(limit, passed)
		if want > 0 {
			found++
		}
		if !assert.Equal(t, want, over(limit, passed), "%+v of %+v", passed, limit) {
			return
		}
	}
	assert.Greater(t, found, 300)
	assert.Less(t, found, 2700)
}
