package engine

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/policy"
)

// As TestKeysComingAndGoingAreExact, while the policy alternates with a half as fast one. A round
// advances the clock by the slower one's draining time. Each key is admitted once a round, also
// while the writer is killed, and every change is made.
//
// Promise: The limit holds during its replacement, however long calls stall.
func TestKeysAreExactWhileThePolicyChanges(t *testing.T) {
	for name, killing := range map[string]bool{"writer left alone": false, "writer killed": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const callers, rounds = 32, max(30/raceFactor, 8)
				quick, lazy := funnel(1, 1, time.Second), funnel(1, 1, 2*time.Second)
				clock := newHandClock()
				var quiet atomic.Bool
				config := Config{
					Policy: quick, Clock: clock.Now, Idle: time.Millisecond, OpenTimeout: time.Minute,
					Restarts: 1 << 30,
				}
				if killing {
					config.fault = func(string) {
						if !quiet.Load() && rand.IntN(200) == 0 {
							panic("killed")
						}
					}
				}
				e := open[string](t, config)
				all := keys(300)
				changes := 0
				over, done := make(chan struct{}), make(chan struct{})
				go func() {
					defer close(done)
					for p := lazy; ; changes++ {
						select {
						case <-over:
							return
						default:
						}
						assert.NoError(t, e.SetPolicy(p))
						if p == lazy {
							p = quick
						} else {
							p = lazy
						}
					}
				}()
				for range rounds {
					var admitted atomic.Int64
					together(callers, func(i int) {
						for j := range all {
							if e.Choke(all[(j+i*7)%len(all)]) {
								admitted.Add(1)
							}
						}
					})
					require.EqualValues(t, len(all), admitted.Load())
					clock.Advance(2*time.Second + time.Millisecond)
					time.Sleep(time.Millisecond)
				}
				close(over)
				<-done
				quiet.Store(true)
				require.NoError(t, e.Health())
				s := e.Stats()
				t.Logf("%d changes, %d restarts, %d evicted", changes, s.Restarts, s.Evicted)
				assert.Greater(t, changes, 1)
				assert.Positive(t, s.Evicted)
				assert.Zero(t, s.Forgiven)
				assert.Zero(t, s.Unavailable)
				assert.Equal(t, killing, s.Restarts > 0)
			})
		})
	}
}

// slow is a funnel with takes that can be held up.
type slow struct {
	policy.Policy
	take func()
}

func (s slow) Take(word uint64, now policy.Instant, n int64, patience time.Duration) (uint64, policy.Decision) {
	s.take()
	return s.Policy.Take(word, now, n, patience)
}

func (s slow) Reads(policy.Policy) bool { return false }

func (s slow) Carry(from policy.Policy, word uint64, now policy.Instant) (uint64, bool) {
	other, ok := from.(slow)
	if !ok {
		return 0, false
	}
	return s.Policy.(policy.Relative).Carry(other.Policy, word, now)
}

// A call has read a key's word and is held up. Two policy changes restore the word, without waiting
// for the call. The call must not store a decision of a policy that is gone: it decides again.
func TestPolicyChangesWhileATakeIsHeldUp(t *testing.T) {
	var hold atomic.Bool
	release, held := make(chan struct{}), make(chan struct{})
	every := func(d time.Duration) policy.Policy {
		return slow{funnel(10, 1, d), func() {
			if hold.CompareAndSwap(true, false) {
				close(held)
				<-release
			}
		}}
	}
	clock := newHandClock()
	e := open[string](t, Config{Policy: every(time.Hour), Clock: clock.Now})
	require.True(t, e.Choke("key"))
	require.True(t, e.Reset("key"), "its word is 0")
	settled(t, e)

	passed := make(chan bool, 1)
	hold.Store(true)
	go func() { passed <- e.Take("key", 1).Allowed }()
	<-held
	require.NoError(t, e.SetPolicy(every(time.Minute)))
	require.NoError(t, e.SetPolicy(every(time.Second)))
	close(release)
	require.True(t, <-passed)
	d := e.Peek("key", 0)
	assert.EqualValues(t, 9, d.Remaining)
	assert.LessOrEqual(t, d.ResetAfter, time.Second+time.Millisecond, "one unit of the policy that holds")
}

// A reservation under another policy gives nothing back, even if two changes restore the word.
func TestCancelAfterTwoChanges(t *testing.T) {
	clock := newHandClock()
	e := open[string](t, Config{Policy: funnel(10, 1, time.Second), Clock: clock.Now})
	r := e.Reserve("key", 4, 0)
	require.True(t, r.Allowed)
	require.NoError(t, e.SetPolicy(funnel(20, 1, time.Second)))
	require.NoError(t, e.SetPolicy(funnel(10, 1, time.Second)))
	settled(t, e)
	alive(t, e)
	r.Cancel()
	assert.EqualValues(t, 6, e.Peek("key", 0).Remaining)
}
