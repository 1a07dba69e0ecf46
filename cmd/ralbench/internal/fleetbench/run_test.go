package fleetbench

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/lab"
	"github.com/ral-limiter/ral/internal/testkit/child"
	"github.com/ral-limiter/ral/internal/testkit/must"
)

const testCallers = 4

// short are the workloads and options of a short run, whose Redis and its folder are gone when the test ends.
func short(t *testing.T) ([]bench.Workload, bench.Options) {
	must.Get(child.FindRedis(""))
	folder := t.TempDir()
	t.Setenv("TMPDIR", folder)
	t.Cleanup(func() {
		assert.Empty(t, must.Get(os.ReadDir(folder)))
	})
	workloads := slices.DeleteFunc(Workloads(0.02), IsLong)
	for i := range workloads {
		if w := &workloads[i]; w.Draw != bench.DrawElsewhere {
			assert.Equal(t, Callers, w.Callers)
			// Each caller may keep a processor for 10 ms.
			w.Callers = testCallers
		}
	}
	return workloads, bench.Options{Duration: 5 * ms, Rounds: 2}
}

func TestRunMeasuresEverything(t *testing.T) {
	workloads, o := short(t)
	parts := map[string]bool{}
	o.Progress = func(p bench.Progress) { parts[p.Workload] = true }
	report, redis, err := Run(t.Context(), workloads, o)
	require.NoError(t, err)
	assert.False(t, report.Interrupted)
	assert.Len(t, parts, len(workloads)+1, "all, and the end")
	assert.NotEmpty(t, redis)

	const speeds = 4
	require.Len(t, report.Workloads, speeds+1+len(loads))
	for _, w := range report.Workloads[:speeds] {
		var names []string
		assert.Equal(t, testCallers, w.Callers)
		for _, r := range w.Results {
			about := r.Name + " in " + w.Name
			names = append(names, r.Name)
			assert.Len(t, r.Rounds, o.Rounds, about)
			assert.Positive(t, r.OpsPerSecond.Median, about)
			require.NotNil(t, r.Audit, about)
			assert.True(t, r.Audit.Clean(), "%s: %+v", about, r.Audit)
			unanswered := int64(0)
			if r.Name == ExactByDefault || r.Name == LeasedByDefault {
				unanswered = r.Audit.Own.Unavailable // on a busy machine a call may take longer than the default budget
			}
			switch {
			case w.Name != Refused:
				assert.Equal(t, r.Audit.Calls, r.Audit.Admitted+unanswered, about)
			case !r.Elsewhere: // others may not come to as many calls as pass
				assert.Less(t, r.Audit.Admitted, r.Audit.Calls, about)
			}
		}
		assert.Equal(t, []string{RedisRate, Exact, Leased, ExactByDefault, LeasedByDefault, EngineTake, EngineChoke}, names)
	}

	for _, w := range report.Workloads[:speeds] {
		for _, r := range w.Results[:5] { // those that ask Redis
			own := *r.Audit.Own
			byDefault := r.Name == ExactByDefault || r.Name == LeasedByDefault
			assert.True(t, byDefault || own.Unavailable == 0, "%s, %s: %+v", w.Name, r.Name, own)
			assert.True(t, r.Name != RedisRate || own.ByRedis+own.ByLease == 0, "%+v", own)
			assert.True(t, r.Name != Exact || own.ByRedis > 0 && own.ByLease == 0, "%+v", own)
			assert.True(t, r.Name != Leased || own.ByLease+own.ByRedis > 0 && (w.Name != Hot || own.ByLease > own.ByRedis), "%+v", own)
			if r.Name == RedisRate || r.Name == Exact {
				assert.Greater(t, r.Over(bench.Pass.BehindNsPerOp).Median, 500.0, "%s, %s", w.Name, r.Name)
				assert.Less(t, r.Over(bench.Pass.BehindNsPerOp).Median, 1e6, "%s, %s", w.Name, r.Name)
			}
		}
		assert.Zero(t, w.Results[5].Over(bench.Pass.BehindNsPerOp), "the engine asks no Redis")
	}

	require.Len(t, report.Workloads[speeds].Results, 3)
	for _, r := range report.Workloads[speeds].Results {
		assert.Equal(t, 200, r.Memory.Keys)
		assert.True(t, 20 < r.Memory.Usage && r.Memory.Usage < r.Memory.BytesPerKey && r.Memory.BytesPerKey < 500, "%+v", r.Memory)
	}
	for _, w := range report.Workloads[speeds+1:] {
		require.Len(t, w.Results, 2, w.Name)
		for _, r := range w.Results {
			assert.True(t, r.Audit.Clean(), "%s: %+v", w.Name, r.Audit)
			assert.Zero(t, r.Audit.Own.Unavailable, "%s: %+v", w.Name, r.Audit)
			assert.Positive(t, r.Audit.Admitted, "%s: %+v", w.Name, r.Audit)
			assert.LessOrEqual(t, r.Share, 1.0) // how much of it depends on the machine's load
			assert.Len(t, r.Audit.Each, Servers)
		}
	}
}

func TestInterruptedRunStopsItsRedis(t *testing.T) {
	for name, doing := range map[string]string{"speed": Hot, "memory": MemoryInRedis, "shares": "fleet-share-even-1000"} {
		t.Run(name, func(t *testing.T) {
			workloads, o := short(t)
			workloads = append(workloads[:1:1], workloads[4:]...)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			o.Progress = func(p bench.Progress) {
				if p.Workload == doing {
					cancel()
				}
			}
			report, _, err := Run(ctx, workloads, o)
			assert.NoError(t, err)
			assert.True(t, report.Interrupted)
			measured := map[string]bool{}
			for _, w := range report.Workloads {
				measured[w.Name] = true
			}
			assert.Equal(t, name == "shares", measured[MemoryInRedis])
			assert.False(t, measured[doing])
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

func TestUnansweredCallsAreCounted(t *testing.T) {
	short(t)
	l := must.Get(lab.Open())
	defer func() { assert.NoError(t, l.Close()) }()
	s := must.Get(startServer(l))
	for answer, want := range map[always]string{true: ": Redis has 0 of 5 keys", false: ": 5 of 5 keys were refused"} {
		_, err := s.measureMemory(t.Context(), Exact, answering(answer).New, 5)
		assert.ErrorContains(t, err, Exact+want, "keys that are not there are no figure")
	}
	for _, c := range contenders(s, nil)[1:3] {
		l := must.Get(c.New(bench.Setup{Limit: bench.Limit{Capacity: 1000, Count: 1000, Per: time.Hour}, MaxKeys: 100}))
		assert.Equal(t, 2, l.Ask([]string{"a", "b"}))
		answered := l.Counts()
		assert.EqualValues(t, 2, answered.ByRedis+answered.ByLease, c.Name)
		assert.Zero(t, answered.Unavailable, c.Name)
		require.NoError(t, s.client.ConfigSet(t.Context(), "maxmemory", "1").Err(), "every write is refused from now on")
		assert.Zero(t, l.Ask([]string{"c", "d", "e"}))
		answered.Unavailable = 3
		assert.Equal(t, answered, l.Counts(), c.Name)
		require.NoError(t, s.client.ConfigSet(t.Context(), "maxmemory", "0").Err())
		require.NoError(t, l.Close())
	}
}
