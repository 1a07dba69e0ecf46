package fleetbench

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// oneWord is a limiter that all servers share, a round trip away.
type oneWord struct {
	mu     sync.Mutex
	policy policy.Policy
	word   uint64
	start  time.Time
	calls  map[string]int
}

func (o *oneWord) Take(_ context.Context, key string, n int64) (limits.Answer, error) {
	time.Sleep(300 * time.Microsecond)         // wall: in the bubble of driven
	now := policy.Instant(time.Since(o.start)) // wall: in the bubble of driven
	o.mu.Lock()
	next, d := o.policy.Take(o.word, now, n, 0)
	o.word = next
	o.calls[key]++
	o.mu.Unlock()
	time.Sleep(300 * time.Microsecond) // wall: in the bubble of driven
	return limits.Answer{Decision: d, Provenance: limits.NewProvenance(limits.SourceRedis, false, nil)}, nil
}

type generous struct{ calls atomic.Int64 }

func (g *generous) Take(context.Context, string, int64) (limits.Answer, error) {
	if g.calls.Add(1)%2 == 0 {
		return limits.Answer{}, errors.New("lost")
	}
	return limits.Answer{Decision: policy.Decision{Allowed: true}, Provenance: limits.NewProvenance(limits.SourceOpen, false, nil)}, nil
}

var hundred = bench.Limit{Capacity: 100, Count: 100, Per: time.Second}

func driven(t *testing.T, l load, server func(i int) asker) (m bench.Measured) {
	synctest.Test(t, func(t *testing.T) {
		c := &shareCase{load: l, limit: hundred}
		for i := range Servers {
			c.askers = append(c.askers, server(i))
		}
		c.drive(t.Context(), 10*time.Second)
		m = c.measured
	})
	return m
}

func TestShareOfALimiterThatIsExact(t *testing.T) {
	for _, l := range loads {
		p, err := policy.Funnel(hundred.Capacity, hundred.Count, hundred.Per)
		require.NoError(t, err)
		var word *oneWord
		m := driven(t, l, func(i int) asker {
			if i == 0 {
				word = &oneWord{policy: p, start: time.Now(), calls: map[string]int{}}
			}
			return word
		})
		s := m.Audit
		require.True(t, s.Clean())
		assert.Len(t, word.calls, 1, "one key")
		assert.InDelta(t, float64(10*time.Second), float64(s.Asked), float64(100*ms))
		assert.Equal(t, hundred.Most(s.Asked), s.Allowed)
		assert.InDelta(t, times*100*10, s.Calls, 200, "three times the rate")
		assert.True(t, m.Share > 0.99 && m.Share <= 1, m.Share)
		assert.Zero(t, s.Own.Unavailable)
		sum := int64(0)
		for _, n := range s.Each {
			sum += n
		}
		assert.Equal(t, s.Admitted, sum)
		part := float64(s.Each[0]) / float64(sum)
		assert.True(t, part > 0.8 || l.name != "skewed" && part < 0.5, "%s: %v", l.name, s.Each)
	}
}

func TestShareOfALimiterThatIsNotFindsTooMany(t *testing.T) {
	m := driven(t, loads[0], func(int) asker { return &generous{} })
	s := m.Audit
	assert.Greater(t, m.Share, 1.0)
	assert.GreaterOrEqual(t, s.Over, s.Admitted-s.Allowed)
	assert.Equal(t, s.Calls, s.Own.Unavailable, "neither by Redis nor on a lease")
	assert.InDelta(t, s.Calls, 2*s.Admitted, Servers)
}

func TestClockThatGainsAllowsMore(t *testing.T) {
	passed := []shareCaller{{passed: spansAt(0, 0, 999*time.Microsecond), calls: 3}}
	for gained, over := range map[time.Duration]int64{0: 1, time.Microsecond: 0} {
		c := &shareCase{limit: perMs}
		c.sum(passed, 1, 2*ms, gained)
		assert.Equal(t, over, c.measured.Audit.Over, gained)
		assert.Equal(t, 2*ms+gained, c.measured.Audit.Asked)
		assert.EqualValues(t, 4, c.measured.Audit.Allowed)
		assert.Equal(t, 0.75, c.measured.Share)
	}
}

func TestPartsOfALoad(t *testing.T) {
	for instant := time.Duration(0); instant < 8*time.Second; instant += 250 * ms {
		for _, l := range loads {
			sum, most := 0.0, 0.0
			for server := range Servers {
				part := l.part(server, instant)
				sum += part
				most = max(most, part)
			}
			assert.InDelta(t, 1, sum, 1e-9, l.name)
			assert.LessOrEqual(t, most, busy, "%s: callers come no more often than that", l.name)
		}
		assert.Equal(t, busy, loads[2].part(int(instant/time.Second)%Servers, instant), "another server is busy each second")
	}
}
