package bench

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
)

func TestCallsNeverAdmitTooManyAndRefuseNoneNeedlessly(t *testing.T) {
	workloads := fewer(Calls(0.1))
	o := quick()
	o.Rounds = 2
	report, err := Run(t.Context(), workloads, RalCalls(), o)
	require.NoError(t, err)
	require.Len(t, report.Workloads, len(workloads))
	for i, w := range report.Workloads {
		assert.NotEmpty(t, w.Results, w.Name)
		for _, r := range w.Results {
			assert.True(t, r.Audit.Clean(), "%s, %s: %+v", w.Name, r.Contender, r.Audit)
			assert.True(t, r.Apart, "%s, %s", w.Name, r.Contender)
			assert.False(t, r.Comparable(), "%s, %s", w.Name, r.Contender)
			assert.True(t, r.KeptPromise(), "%s, %s", w.Name, r.Contender)
			assert.Equal(t, workloads[i].Base != "" && r.Contender != workloads[i].Base, r.OfBase != nil, "%s, %s", w.Name, r.Contender)
			if workloads[i].Refused == 0 {
				assert.Zero(t, r.RefusedShare, "%s, %s", w.Name, r.Contender)
			} else {
				assert.True(t, r.Audit.Binds, "%s, %s", w.Name, r.Contender)
				assert.Positive(t, r.RefusedShare, "%s, %s", w.Name, r.Contender)
			}
		}
	}
}

func TestEveryLimitAndVerbHasARow(t *testing.T) {
	rows := map[string][]string{}
	for _, w := range Calls(1) {
		for _, c := range RalCalls() {
			if c.can(w) {
				rows[w.Name] = append(rows[w.Name], c.Name)
			}
		}
	}
	limits := []string{"Ral AtMost", "Ral Bursty", "Ral FixedWindow", "Ral Queue", "Ral SlidingWindow", "Ral WarmingUp"}
	assert.Equal(t, map[string][]string{
		LimitsWorkload:         append([]string{"Ral"}, limits...),
		LimitsAuditWorkload:    append([]string{"Ral"}, limits...),
		LimitsTakeWorkload:     append([]string{"Ral", "Ral Take"}, limits...),
		VerbsWorkload:          {"Ral", "Ral Peek", "Ral Reserve", "Ral Acquire", "Ral Refund", "Ral Wait", "Ral TakeWith", "Ral PolicyFor"},
		SeveralWorkload:        {"Ral", "Ral Tiered", "Ral TakeAll", "Ral AcquireAll"},
		SeveralRefusedWorkload: {"Ral", "Ral Tiered", "Ral TakeAll", "Ral AcquireAll"},
		SetPolicyWorkload:      {"Ral SetPolicy"},
	}, rows)
}

func TestContendersOfOneKindOfWorkloadStayOutOfTheOthers(t *testing.T) {
	made := Contender{Name: "made for it", For: []string{VerbsWorkload}}
	for _, w := range All(1) {
		assert.Equal(t, !w.Apart, (Contender{Name: "any"}).can(w), w.Name)
		assert.Equal(t, w.Name == VerbsWorkload, made.can(w), w.Name)
	}
}

func TestKeysInTurnAreAskedEquallyOften(t *testing.T) {
	w := Workload{Name: "turns", Limit: loose, Draw: DrawInTurn, Keys: 3, Callers: 2}
	for _, s := range drawStreams(w, 2) {
		assert.Equal(t, []uint32{0, 1, 2}, s.order)
	}
	report, err := Run(t.Context(), []Workload{w}, []Contender{exactBucket("a")}, quick())
	require.NoError(t, err)
	assert.Equal(t, "in turn", report.Workloads[0].Draw)
	assert.EqualValues(t, 1, report.Workloads[0].Results[0].Audit.Limiters, "the limiter is kept")
}

func TestBriefShortensOnlyTheWorkloadsOfCalls(t *testing.T) {
	all := All(1)
	brief := Brief(all)
	for i, w := range brief {
		if !w.Apart || w.OneTimedPass {
			assert.Equal(t, all[i], w)
			continue
		}
		assert.Equal(t, 3, w.Rounds, w.Name)
		assert.Positive(t, w.Duration, w.Name)
		assert.True(t, w.AuditOnly, w.Name)
		assert.Zero(t, all[i].Duration, "the workload given is as it was")
	}
}

func TestRefundedKeysOwe(t *testing.T) {
	for _, c := range RalCalls() {
		if c.Name != "Ral Refund" {
			continue
		}
		l, err := c.New(Setup{Limit: roomy, Keys: 2, MaxKeys: 10})
		require.NoError(t, err)
		keys := []string{"a", "b"}
		l.(preparer).prepare(keys)
		assert.Equal(t, 2, l.ChokeAll(keys))
		e := l.(callLimiter).of.(*engine.Engine[string])
		for _, key := range keys {
			assert.Greater(t, e.Take(key, 1).RetryAfter, 23*time.Hour, key)
		}
		require.NoError(t, l.Close())
	}
}

type prepared struct {
	bucket
	told []string
}

func (p *prepared) prepare(keys []string) { p.told = append(p.told, keys...) }

func (p *prepared) ChokeAll(keys []string) int {
	if len(p.told) == 0 {
		panic("asked before it was told of its keys")
	}
	return p.bucket.ChokeAll(keys)
}

func TestLimitersAreToldTheirKeysFirst(t *testing.T) {
	var told []string
	c := Contender{Name: "prepared", New: func(s Setup) (Limiter, error) {
		p := &prepared{bucket: bucket{capacity: s.Limit.Capacity, taken: map[string]*atomic.Int64{}}}
		p.closed = func() error { told = p.told; return nil }
		return p, nil
	}}
	_, err := Run(t.Context(), []Workload{{Name: "some", Limit: loose, Draw: DrawInTurn, Keys: 3}}, []Contender{c}, quick())
	require.NoError(t, err)
	assert.Equal(t, newStream(upTo(0, 3)).keys, told)
}

func TestSlowCallsAreStoppedOneByOne(t *testing.T) {
	for _, slow := range []bool{false, true} {
		var stop atomic.Bool
		b := &bucket{capacity: 1, taken: map[string]*atomic.Int64{}}
		l := stopping{b, &stop}
		c := &caller{stream: newStream(upTo(0, 3*batch)), slow: slow}
		c.once(l, &stop, Limiter.ChokeAll)
		assert.EqualValues(t, map[bool]int{false: batch, true: 1}[slow], c.asked)
	}
}

type stopping struct {
	*bucket
	stop *atomic.Bool
}

func (s stopping) ChokeAll(keys []string) int {
	s.stop.Store(true)
	return s.bucket.ChokeAll(keys)
}

func TestWorkloadMayHaveADurationOfItsOwn(t *testing.T) {
	o := quick()
	w := Workload{Name: "short", Limit: loose, Keys: 1}
	long := Estimate([]Workload{w}, []Contender{Floor()}, o)
	w.Duration = o.Duration / 2
	assert.Less(t, Estimate([]Workload{w}, []Contender{Floor()}, o), long)
	w.Duration, w.Draw, w.CallCost = 0, DrawOnce, time.Hour
	assert.GreaterOrEqual(t, Estimate([]Workload{w}, []Contender{Floor()}, o), time.Hour)
}
