package lease

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/policy"
)

// hoard leases the whole limit to some servers, and keeps them waiting for another key, so that
// none gives units back. After some terms it uses all units of the servers and the bank at one
// instant. It returns the units used, and fails if they exceed the limit.
func hoard(t *testing.T, limit policy.Policy, terms float64) (used int64) {
	synctest.Test(t, func(t *testing.T) {
		plan := must.Get(NewPlan(limit, 0))
		plan = must.Get(NewPlan(limit, plan.Term)) // leases last as long as they may
		m := newMemory(plan)
		var log audit
		var all []*Leases
		for range servers {
			w := sharp(m)
			w.change(time.Minute, nil)
			l := must.Get(New(Config{Plan: plan, Bank: w, Timeout: time.Minute, seed: 1, always: true}))
			go func() { _, _ = l.Take("other", 1, budget, nil) }()
			all = append(all, l)
		}
		synctest.Wait()
		start := time.Now()
		for _, l := range all {
			l.mu.Lock()
			a, _ := l.book.open("key", start)
			ask := Ask{Key: "key", Need: 1, Most: plan.Limit() / servers}
			l.answer(a, start, ask, m.lease(ask))
			l.mu.Unlock()
		}
		time.Sleep(time.Duration(terms * float64(plan.Term)))
		for _, l := range all {
			for {
				d, ok := l.Try("key", 1)
				if !ok || !d.Allowed {
					break
				}
				used++
			}
		}
		used += m.lease(Ask{Key: "key", Need: 1, Most: plan.Limit()}).Units
		log.add("key", m.now(), used)
		assert.NoError(t, log.fault(limit.(shape.Shaped).Shape(), m), "after %v terms", terms)
		for _, l := range all {
			l.Kill()
		}
		time.Sleep(time.Hour) // until the wires are empty
	})
	return used
}

// Leased units and units drained since, used at one instant, keep the limit. Shortly before leases
// of a funnel end this uses all of its capacity: longer leases would exceed it.
func TestHoardedLeasesKeepTheLimit(t *testing.T) {
	one(t)
	for _, limit := range []policy.Policy{
		policy.Must(policy.Funnel(1000, 1000, time.Second)),
		policy.Must(policy.Funnel(400, 2000, time.Second)),
		policy.Must(policy.Funnel(2000, 100, time.Second)),
		policy.Must(policy.FixedWindow(1000, 10*time.Second)),
		policy.Must(policy.SlidingWindow(1000, 10*time.Second)),
	} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			s, most := limit.(shape.Shaped).Shape(), int64(0)
			for _, terms := range []float64{0.5, 0.998, 1, 1.01, 1.1, 1.25, 1.5, 2, 3, 3.9, 5, 10, 100} {
				used := hoard(t, limit, terms)
				if most = max(most, used); terms > 1 && s.Kind == shape.Funnel {
					assert.LessOrEqual(t, used, s.Capacity-s.Capacity/100, "after %v terms leases are still of use", terms)
				}
			}
			if s.Kind == shape.Funnel {
				assert.GreaterOrEqual(t, most, s.Capacity*99/100, "this tries too little")
			}
		})
	}
}
