package bench

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
)

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

func TestWorkloadMayHaveADurationOfItsOwn(t *testing.T) {
	o := quick()
	w := Workload{Name: "short", Limit: loose, Keys: 1}
	long := Estimate([]Workload{w}, []Contender{Floor()}, o)
	w.Duration = o.Duration / 2
	assert.Less(t, Estimate([]Workload{w}, []Contender{Floor()}, o), long)
	w.Duration, w.Draw, w.CallCost = 0, DrawOnce, time.Hour
	assert.GreaterOrEqual(t, Estimate([]Workload{w}, []Contender{Floor()}, o), time.Hour)
}

func TestLimitersAreToldTheirKeysFirst(t *testing.T) {
	made := &fake{ask: passAll}
	c := faked("told", func(Setup) *fake { return made })
	resultOf(t, quick(), Workload{Name: "some", Limit: loose, Draw: DrawInTurn, Keys: 3}, c)
	assert.Equal(t, newStream(upTo(0, 3)).keys, made.told)
}

func TestSlowCallsAreStoppedOneByOne(t *testing.T) {
	for slow, want := range map[bool]int64{false: batch, true: 1} {
		var stop atomic.Bool
		c := &caller{stream: newStream(upTo(0, 3*batch)), slow: slow}
		c.once(nil, &stop, func(_ Limiter, keys []string) int {
			stop.Store(true)
			return len(keys)
		})
		assert.Equal(t, want, c.asked, "slow %v", slow)
	}
}
