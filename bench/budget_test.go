package bench

import (
	"cmp"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/testkit/must"
)

// estimate returns the estimated time of a run, which tells it also if it ends before it begins.
func estimate(workloads []Workload, contenders []Contender, o Options) (total time.Duration) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	o.Progress = func(p Progress) { total = p.Total }
	must.Get(Run(ctx, workloads, contenders, o))
	return total
}

// Promise: A run keeps within its budget of time.
func TestBudgetBoundsFirstRoundsToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys = 100_000
		slow := sleeping("slow", 100*time.Microsecond)
		grow := func(name string) Workload {
			return Workload{Name: name, Limit: Loose, Keys: keys, Draw: DrawOnce, Rounds: 1, OneTimedPass: true}
		}
		o := quick()
		// Each contender takes 5 s.
		o.Budget = 8 * time.Second
		report := ran(t, o, []Workload{grow("first"), grow("second")}, slow, sleeping("slower", 200*time.Microsecond))
		assert.False(t, report.Interrupted)
		assert.InDelta(t, o.Budget, report.Took, float64(100*time.Millisecond), "at the end of a batch")
		assert.Equal(t, []LeftOut{
			{Workload: "first", CPU: report.LeftOut[0].CPU, Contenders: []string{"slower"}},
			{Workload: "second", CPU: report.LeftOut[0].CPU, Contenders: []string{"slow", "slower"}},
		}, report.LeftOut)
		require.Len(t, report.Workloads, 1)
		require.Len(t, report.Workloads[0].Results, 1)
		assert.EqualValues(t, keys, report.Workloads[0].Results[0].Rounds[0].Calls, "no part of a pass is kept")
	})
}

func TestRoundsAreLeftOutBeforeContenders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := quick()
		o.Budget = 20 * time.Second
		flood := Workload{Name: "flood", Limit: Loose, Keys: 50_000, Draw: DrawOnce, Rounds: 100, AuditOnly: true}
		grow := Workload{Name: "growth", Limit: Loose, Keys: 100_000, Draw: DrawOnce, Rounds: 1, AuditOnly: true}
		report := ran(t, o, []Workload{flood, grow}, sleeping("a", 50*time.Microsecond), sleeping("b", 50*time.Microsecond))
		assert.Empty(t, report.LeftOut)
		assert.LessOrEqual(t, report.Took, o.Budget)
		require.Len(t, report.Workloads, 2)
		for _, w := range report.Workloads {
			require.Len(t, w.Results, 2, w.Name)
		}
		rounds := len(report.Workloads[0].Results[0].Rounds)
		assert.Greater(t, rounds, 1)
		assert.Less(t, rounds, 100)
	})
}

// Promise: When time is short, all workloads of a run have as many rounds.
func TestRoundsAreLeftOutEvenly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := quick()
		o.Rounds = 9
		var workloads []Workload
		for i, keys := range []int{50_000, 10_000, 100_000, 1000} {
			workloads = append(workloads, Workload{Name: string(rune('a' + i)), Limit: Loose, Keys: keys, Draw: DrawOnce, AuditOnly: true})
		}
		workloads = append(workloads, Workload{Name: "hot", Limit: Loose, Keys: 1, AuditOnly: true})
		// Each takes ten times as long as estimated.
		c := sleeping("slow", 10*newKeyCost)
		o.Budget = 5 * estimate(workloads, []Contender{c}, o)
		report := ran(t, o, workloads, c)
		assert.LessOrEqual(t, report.Took, o.Budget)
		require.Len(t, report.Workloads, len(workloads))
		least, most := o.Rounds, 0
		for _, w := range report.Workloads {
			n := len(w.Results[0].Rounds)
			least, most = min(least, n), max(most, n)
		}
		assert.GreaterOrEqual(t, least, 3)
		assert.LessOrEqual(t, most-least, 1, "%d to %d rounds", least, most)
	})
}

// Everything takes half as long again as estimated.
//
// Promise: A run with 1.6 times as long as three rounds need has them in every workload.
func TestBudgetHasThreeRoundsOfEachWorkload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := quick()
		o.Duration, o.Rounds = 100*ms, 5
		workloads := []Workload{
			{Name: "hot", Limit: Loose, Keys: 1},
			{Name: "many", Limit: Loose, Keys: 100_000},
			{Name: "flood", Limit: Loose, Keys: 200_000, Draw: DrawOnce},
			{Name: "calls", Limit: Loose, Keys: 1, Duration: 40 * ms, Rounds: 3, AuditOnly: true},
			{Name: "memory", Limit: Loose, Keys: 100_000, Draw: DrawOnce, Rounds: 1, AuditOnly: true},
		}
		contenders := []Contender{sleeping("a", 3*newKeyCost), sleeping("b", 3*newKeyCost)}
		three := o
		three.Rounds = 3
		o.Budget = 8 * estimate(workloads, contenders, three) / 5
		report := ran(t, o, workloads, contenders...)
		assert.LessOrEqual(t, report.Took, o.Budget)
		assert.Empty(t, report.LeftOut)
		for i, w := range report.Workloads {
			for _, r := range w.Results {
				assert.GreaterOrEqual(t, len(r.Rounds), min(cmp.Or(workloads[i].Rounds, 3), 3), "%s, %s", w.Name, r.Name)
			}
		}
	})
}

func TestRoundFitsIfEachLaterWorkloadCanHaveIt(t *testing.T) {
	b := budget{most: 10_527 * time.Millisecond, later: []cost{{first: time.Second, round: time.Second, rounds: 3}}}
	assert.True(t, b.fits(5*time.Second, 2*time.Second, 3))
	assert.False(t, b.fits(5*time.Second, 2*time.Second+time.Millisecond, 3), "a later round would be left out")
	assert.True(t, b.fits(5*time.Second, 3*time.Second, 2), "the second rounds fit")
	b.done = time.Second
	assert.False(t, b.fits(5*time.Second, time.Second, 2), "the run takes five times as long as estimated")
}

func TestSlowWorkloadLeavesLaterTheirPart(t *testing.T) {
	b := budget{most: 100 * time.Second, done: 2 * time.Second, later: []cost{{first: 30 * time.Second}}}
	now := cost{first: 10 * time.Second}
	assert.Equal(t, 68*time.Second, b.share(2*time.Second, now), "the later need 30 of 98 seconds")
	assert.Equal(t, 22_500*time.Millisecond, b.share(10*time.Second, now), "by their pace all need more, so this has a quarter of 90 seconds")
}

func TestEndedIdlingIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		forgets := sleeping("forgets", newKeyCost)
		forgets.Idles = true
		w := Workload{
			Name: "memory", Limit: Loose, Keys: 1000, Draw: DrawOnce, Rounds: 1, AuditOnly: true,
			Memory: true, Idle: time.Hour,
		}
		for budget, idled := range map[time.Duration]time.Duration{0: time.Hour, time.Minute: 0} {
			o := quick()
			o.Budget = budget
			report := ran(t, o, []Workload{w}, forgets)
			m := report.Workloads[0].Results[0].Memory
			assert.Equal(t, idled, m.Idle)
			assert.Equal(t, idled == 0, m.IdleUnknown)
			assert.True(t, budget == 0 || report.Took <= budget, report.Took)
		}
	})
}
