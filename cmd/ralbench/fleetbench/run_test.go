package fleetbench

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/fleet"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/internal/testkit/redisd"
)

const fewCallers = 4

// options are of a short run, whose Redis and its folder are gone when the test ends.
func options(t *testing.T) Options {
	binary := must.Get(redisd.Find(""))
	folder := t.TempDir()
	t.Setenv("TMPDIR", folder)
	t.Cleanup(func() {
		assert.Empty(t, must.Get(os.ReadDir(folder)))
	})
	workloads := Workloads(0.02)
	for i := range workloads {
		assert.Equal(t, Callers, workloads[i].Callers)
		workloads[i].Callers = fewCallers // of which each may keep a processor for 10 ms
	}
	return Options{
		Server: binary, Workloads: workloads, Keys: 200,
		Bench: bench.Options{Duration: 5 * ms, Rounds: 2},
		Share: 300 * ms, Limits: []bench.Limit{hundred},
	}
}

func TestRunMeasuresEverything(t *testing.T) {
	o := options(t)
	var last bench.Progress
	parts := map[string]bool{}
	o.Bench.Progress = func(p bench.Progress) {
		assert.GreaterOrEqual(t, p.Done, last.Done, "%+v after %+v", p, last)
		assert.Equal(t, bench.Estimate(o.Workloads, Contenders("", ""), o.Bench)+o.rest(), p.Total)
		assert.LessOrEqual(t, p.Done, p.Total, "%+v", p)
		if p.Workload == sharePart && last.Workload != sharePart {
			assert.InDelta(t, float64(o.Share), float64(p.Total-p.Done), float64(ms), "all else is done")
		}
		last = p
	}
	o.Bench.Finished = func(w bench.WorkloadReport) { parts[w.Name] = true }
	report, more, err := Run(t.Context(), o)
	require.NoError(t, err)
	assert.False(t, report.Interrupted)
	assert.Equal(t, last.Total, last.Done, "it ends at 100%")
	assert.Len(t, parts, len(o.Workloads)+2)
	assert.NotEmpty(t, more.Redis)

	require.Len(t, report.Workloads, len(o.Workloads))
	for _, w := range report.Workloads {
		var names []string
		assert.Equal(t, fewCallers, w.Callers)
		for _, r := range w.Results {
			of := r.Contender + " in " + w.Name
			names = append(names, r.Contender)
			assert.Len(t, r.Rounds, o.Bench.Rounds, of)
			assert.Positive(t, r.OpsPerSecond.Median, of)
			require.NotNil(t, r.Audit, of)
			assert.True(t, r.Audit.Clean(), "%s: %+v", of, r.Audit)
			unanswered := int64(0)
			if r.Contender == ExactByDefault || r.Contender == LeasedByDefault {
				unanswered = r.Audit.Own.Unavailable // on a busy machine a call may take longer than the default budget
			}
			switch {
			case w.Name != Refused:
				assert.Equal(t, r.Audit.Calls, r.Audit.Admitted+unanswered, of)
			case !r.Elsewhere: // others may not come to as many calls as pass
				assert.Less(t, r.Audit.Admitted, r.Audit.Calls, of)
			}
		}
		assert.Equal(t, []string{RedisRate, Exact, Leased, ExactByDefault, LeasedByDefault, EngineTake, EngineChoke}, names)
	}

	require.Len(t, more.Work, 5*len(o.Workloads))
	for _, w := range more.Work {
		require.Len(t, w.Rounds, o.Bench.Rounds, "%+v", w)
		byDefault := w.Contender == ExactByDefault || w.Contender == LeasedByDefault
		assert.True(t, byDefault || w.Neither == 0, "%+v", w)
		assert.True(t, w.Contender != RedisRate || w.ByRedis+w.ByLease == 0, "%+v", w)
		assert.True(t, w.Contender != Exact || w.ByRedis > 0 && w.ByLease == 0, "%+v", w)
		assert.True(t, w.Contender != Leased || w.ByLease+w.ByRedis > 0 && (w.Workload != Hot || w.ByLease > w.ByRedis), "%+v", w)
		if w.Contender == RedisRate || w.Contender == Exact {
			assert.Greater(t, w.RedisNsPerOp.Median, 500.0, "%+v", w)
			assert.Less(t, w.RedisNsPerOp.Median, 1e6, "%+v", w)
		}
	}

	require.Len(t, more.Memory, 3)
	for _, m := range more.Memory {
		assert.Equal(t, o.Keys, m.Keys)
		assert.Contains(t, m.Name, "tok_")
		assert.True(t, float64(len(m.Name)) < m.Usage && m.Usage < m.Used && m.Used < 500, "%+v", m)
	}
	require.Len(t, more.Shares, 2*len(loads))
	for _, s := range more.Shares {
		assert.NoError(t, s.Err())
		assert.Zero(t, s.Neither, "%+v", s)
		assert.Positive(t, s.Admitted, "%+v", s)
		assert.LessOrEqual(t, s.Share, 1.0, "%+v", s) // how much of it depends on the machine's load
		assert.Len(t, s.Each, Servers)
	}
	assert.NotEmpty(t, more.Goals)
}

func TestInterruptedRunStopsItsRedis(t *testing.T) {
	for name, doing := range map[string]string{"speed": Hot, "memory": memoryPart, "shares": sharePart} {
		t.Run(name, func(t *testing.T) {
			o := options(t)
			o.Workloads, o.Share = o.Workloads[:1], time.Hour
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			o.Bench.Progress = func(p bench.Progress) {
				if p.Workload == doing {
					cancel()
				}
			}
			report, more, err := Run(ctx, o)
			assert.NoError(t, err)
			assert.True(t, report.Interrupted)
			assert.Empty(t, more.Shares)
			assert.Equal(t, name == "shares", len(more.Memory) == 3)
		})
	}
}

// always is a limiter that admits every call, or none.
type always bool

func (a always) ask(keys []string) int {
	if a {
		return len(keys)
	}
	return 0
}

func answering(a always) bench.Contender {
	return bench.Contender{Name: Exact, New: func(bench.Setup) (bench.Limiter, error) { return bench.Limiter{Ask: a.ask}, nil }}
}

func TestRunThatOverAdmitsIsAFailure(t *testing.T) {
	o := options(t)
	o.Workloads, o.Keys, o.Share = o.Workloads[len(o.Workloads)-1:], 0, 0
	o.contenders = func(string, string, ways) []bench.Contender {
		return []bench.Contender{answering(true)}
	}
	report, more, err := Run(t.Context(), o)
	require.ErrorIs(t, err, ErrOver)
	assert.ErrorContains(t, err, Exact+" in "+Refused)
	assert.Len(t, report.Workloads, 1, "it is told all the same")
	assert.Empty(t, more.Memory)
	assert.Empty(t, more.Shares)
}

func TestUnansweredCallsAreCounted(t *testing.T) {
	s := must.Get(startServer(options(t).Server))
	defer func() { assert.NoError(t, s.stop()) }()
	for answer, want := range map[always]string{true: ": Redis has 0 of 5 keys", false: ": 5 of 5 keys were refused"} {
		_, err := measureMemory(t.Context(), s, answering(answer), 5)
		assert.ErrorContains(t, err, Exact+want, "keys that are not there are no figure")
	}
	var told []string
	for _, c := range contenders(s.Network(), s.Addr(), func(name string, st fleet.Stats) {
		told = append(told, name)
		assert.EqualValues(t, 2, st.Exact+st.Leased)
		assert.EqualValues(t, 3, st.Closed)
	}) {
		if c.Name != Exact && c.Name != Leased { // of the others a busy machine leaves calls without an answer
			continue
		}
		l := must.Get(c.New(bench.Setup{Limit: bench.Limit{Capacity: 1000, Count: 1000, Per: time.Hour}, MaxKeys: 100}))
		assert.Equal(t, 2, l.Ask([]string{"a", "b"}))
		assert.Zero(t, l.Counts())
		require.NoError(t, s.client.ConfigSet(t.Context(), "maxmemory", "1").Err(), "every write is refused from now on")
		assert.Zero(t, l.Ask([]string{"c", "d", "e"}))
		assert.Equal(t, bench.Counts{Unavailable: 3}, l.Counts())
		require.NoError(t, s.client.ConfigSet(t.Context(), "maxmemory", "0").Err())
		require.NoError(t, l.Close())
	}
	assert.Equal(t, []string{Exact, Leased}, told)
}
