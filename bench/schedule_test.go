package bench

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/testkit/must"
)

// A workload measured elsewhere has as many rounds as others, once for all values of GOMAXPROCS, and
// no budget cuts it.
func TestContendersMeasureThemselves(t *testing.T) {
	w := Workload{Name: "some", Draw: DrawElsewhere, Apart: true, Base: "a", Rounds: 3, Duration: time.Hour}
	measuring := func(name string, ns time.Duration) Contender {
		calls := int64(0)
		return Contender{Name: name, For: []string{"some"}, Elsewhere: true, Measure: func(_ context.Context, got Workload, d time.Duration) (Measured, error) {
			assert.Equal(t, w.Name, got.Name)
			assert.Equal(t, time.Hour, d)
			calls++
			return Measured{
				Pass: Pass{Calls: calls, CPU: time.Duration(calls) * ns}, Latency: Latency{P50: time.Duration(calls), P99: time.Duration(10 * calls)},
				Audit: &Audit{Limiters: 1, Over: calls}, Share: 0.5, Memory: &Memory{Keys: 7},
			}, nil
		}}
	}
	report := must.Get(Run(t.Context(), []Workload{w}, []Contender{measuring("a", 10), measuring("b", 25)},
		Options{Duration: 1, Rounds: 1, CPUs: []int{1, 2}, Budget: time.Nanosecond}))
	require.Len(t, report.Workloads, 1)
	assert.Equal(t, 2, report.Workloads[0].CPU)
	for _, r := range report.Workloads[0].Results {
		assert.Len(t, r.Rounds, 3, r.Name)
		assert.Equal(t, Latency{P50: 2, P99: 20}, *r.Latency, "medians over the rounds")
		assert.EqualValues(t, 3, r.Audit.Over, "the last audit is of all rounds")
		assert.Equal(t, 0.5, r.Share)
		assert.Equal(t, 7, r.Memory.Keys)
		assert.True(t, r.Outside)
	}
	assert.Equal(t, 2.5, report.Workloads[0].Results[1].OfBase.Median)
}

func TestEndedRunKeepsNoRoundMeasuredElsewhere(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c := Contender{Name: "a", For: []string{"some"}, Measure: func(ctx context.Context, _ Workload, _ time.Duration) (Measured, error) {
		cancel()
		return Measured{}, ctx.Err()
	}}
	report := must.Get(Run(ctx, []Workload{{Name: "some", Draw: DrawElsewhere, Apart: true, Rounds: 2}}, []Contender{c}, Options{Duration: 1, Rounds: 1}))
	assert.True(t, report.Interrupted)
	assert.Empty(t, report.Workloads)
}

// A limiter that another process works for says what that process spent in each pass.
func TestProcessorTimeOfAnotherProcessIsOfItsPass(t *testing.T) {
	spent := time.Duration(0)
	c := faked("a", func(Setup) *fake {
		return &fake{ask: func(keys []string) int { spent += 3 * time.Duration(len(keys)); return len(keys) }}
	})
	made := c.New
	c.New = func(s Setup) (Limiter, error) {
		l, err := made(s)
		l.Spent = func() time.Duration { return spent }
		return l, err
	}
	report := must.Get(Run(t.Context(), []Workload{{Name: "some", Limit: slow, Keys: 1, Callers: 1}}, []Contender{c}, Options{Duration: time.Millisecond, Rounds: 2}))
	assert.Equal(t, Spread{Median: 3, Min: 3, Max: 3}, report.Workloads[0].Results[0].Over(Pass.BehindNsPerOp))
}
