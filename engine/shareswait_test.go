package engine

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/testkit/testenv"
	"github.com/ral-limiter/ral/policy"
)

// inBubble runs a test of shares in a bubble, and checks that no call is left in line.
func inBubble[K comparable](t *testing.T, config SharesConfig[K], test func(t *testing.T, s *Shares[K])) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		config.Config.PackageTime = true
		s, err := NewShares(config)
		require.NoError(t, err)
		test(t, s)
		synctest.Wait()
		assert.Zero(t, s.Stats().Waiting)
		assert.Empty(t, s.turns.tenants)
		assert.Equal(t, []int{0, 0}, []int{s.turns.line.Len(), int(s.turns.active.Load())})
		assert.NoError(t, s.Close())
	})
}

// waitingTenants has no guarantees, and weights by tenant.
func waitingTenants(weights ...float64) SharesConfig[int] {
	return SharesConfig[int]{
		Total:  funnel(20, 100, time.Second),
		Weight: func(tenant int) float64 { return weights[tenant] },
	}
}

// backlog has calls of a tenant wait all the time, until over. served is called for each, in order.
func backlog(s *Shares[int], over context.Context, tenant, calls int, cost func() int64, served func(n int64)) {
	for range calls {
		go func() {
			for {
				n := cost()
				r, err := s.Acquire(over, tenant, n, policy.Never)
				if err != nil {
					return
				}
				if r.Borrowed {
					served(n)
				}
			}
		}()
	}
}

// Promise: Calls that wait for `Shares` are served by tenant, in the proportion of the weights.
func TestTenantsThatWaitBorrowByWeight(t *testing.T) {
	weights := []float64{1, 2, 5, 10}
	inBubble(t, waitingTenants(weights...), func(t *testing.T, s *Shares[int]) {
		require.True(t, s.Take(0, 20).Borrowed)
		over, end := context.WithCancel(t.Context())
		var mu sync.Mutex
		dice := rand.New(rand.NewPCG(testenv.Seed(t), 1))
		served, far := make([]float64, len(weights)), 0.0
		const largest = 6
		for tenant := range weights {
			cost := func() int64 {
				mu.Lock()
				defer mu.Unlock()
				if tenant%2 == 1 {
					return 1 // small calls gain nothing
				}
				return 1 + dice.Int64N(largest)
			}
			// A tenant that has more calls in line has no more turns.
			backlog(s, over, tenant, 30-5*tenant, cost, func(n int64) {
				mu.Lock()
				defer mu.Unlock()
				served[tenant] += float64(n)
				for i := range weights {
					for j := range weights {
						far = max(far, served[i]/weights[i]-served[j]/weights[j]-largest/weights[j]-1)
					}
				}
			})
		}
		for range 1000 {
			time.Sleep(97 * time.Millisecond)
			if s.Choke(0) {
				t.Error("a call that does not wait borrows")
			}
		}
		mu.Lock()
		total := served[0] + served[1] + served[2] + served[3]
		t.Log(served)
		// Turns of the same instant may be counted in another order, for the room of the group.
		assert.LessOrEqual(t, far, 20.0)
		for i := range weights {
			assert.InEpsilon(t, weights[i]/18, served[i]/total, 0.02)
		}
		assert.InEpsilon(t, 9700, total, 0.01, "the whole rate")
		mu.Unlock()
		end()
	})
}

// Promise: A tenant's guarantee is its weight unless a weight is given, and a tenant without one has the smallest.
func TestWeightIsTheGuaranteesRate(t *testing.T) {
	rates := []int64{10, 20, 50}
	config := SharesConfig[int]{
		Total: funnel(100, 1000, time.Second), Reserved: funnel(10, 500, time.Second),
		Guarantee: func(tenant int) policy.Policy {
			if tenant == len(rates) {
				return nil
			}
			return funnel(1, rates[tenant], time.Second)
		},
	}
	inBubble(t, config, func(t *testing.T, s *Shares[int]) {
		require.True(t, s.Take(len(rates), 90).Borrowed)
		over, end := context.WithCancel(t.Context())
		var mu sync.Mutex
		borrowed := make([]float64, len(rates)+1)
		for tenant := range borrowed {
			backlog(s, over, tenant, 10, func() int64 { return 1 }, func(n int64) {
				mu.Lock()
				borrowed[tenant] += float64(n)
				mu.Unlock()
			})
		}
		time.Sleep(time.Minute)
		mu.Lock()
		t.Log(borrowed, s.Stats())
		for i, rate := range append(rates, 10) {
			assert.InEpsilon(t, float64(rate), borrowed[i]/(borrowed[0]+borrowed[1]+borrowed[2]+borrowed[3])*90, 0.02)
		}
		mu.Unlock()
		end()
	})
	for _, weight := range []float64{0, -1, math.NaN(), math.Inf(1)} {
		s := newShares(t, waitingTenants(weight))
		assert.Equal(t, 1.0, s.weightOf(&shareCall[int]{shares: s}), "%v", weight)
	}
}

// Promise: A tenant with one call in line waits for at most ceil(cost / weight) rounds.
func TestOneCallInLineWaitsForItsRounds(t *testing.T) {
	const others, largest = 5, 7
	weights := []float64{3, 3, 3, 3, 3, 2}
	for n := int64(1); n <= 12; n += 3 {
		inBubble(t, waitingTenants(weights...), func(t *testing.T, s *Shares[int]) {
			over, end := context.WithCancel(t.Context())
			var mu sync.Mutex
			dice := rand.New(rand.NewPCG(testenv.Seed(t), uint64(n)))
			served := make([]int64, others)
			for tenant := range others {
				backlog(s, over, tenant, 20, func() int64 {
					mu.Lock()
					defer mu.Unlock()
					return 1 + dice.Int64N(largest)
				}, func(n int64) {
					mu.Lock()
					defer mu.Unlock()
					served[tenant] += n
				})
			}
			time.Sleep(3*time.Second + time.Duration(n*n)*time.Millisecond)
			synctest.Wait()
			mu.Lock()
			before := slices.Clone(served)
			mu.Unlock()
			r, err := s.Acquire(t.Context(), others, n, policy.Never)
			require.NoError(t, err)
			assert.True(t, r.Borrowed && r.Waited > 0)
			mu.Lock()
			rounds := math.Ceil(float64(n) / weights[others])
			for i := range served {
				assert.Less(t, float64(served[i]-before[i]), (rounds+1)*weights[i]+largest, "%d units, %v rounds", n, rounds)
			}
			mu.Unlock()
			end()
		})
	}
}

func TestCallsOfATenantAreServedInOrder(t *testing.T) {
	config := waitingTenants(5, 1)
	config.Tenants, config.Guarantee = []int{0}, func(int) policy.Policy { return funnel(5, 10, time.Second) }
	inBubble(t, config, func(t *testing.T, s *Shares[int]) {
		dice := rand.New(rand.NewPCG(testenv.Seed(t), 1))
		require.True(t, s.Take(1, 15).Borrowed)
		require.True(t, s.Take(0, 5).Allowed)
		var mu sync.Mutex
		var all sync.WaitGroup
		guaranteed, borrowed := 0, 0
		began, ends := time.Now(), make([]time.Duration, 200)
		for i := range ends {
			n := 1 + dice.Int64N(5)
			all.Go(func() {
				r, err := s.Acquire(t.Context(), 0, n, policy.Never)
				assert.NoError(t, err)
				mu.Lock()
				defer mu.Unlock()
				if ends[i] = time.Since(began); r.Borrowed {
					borrowed++
				} else {
					guaranteed++
				}
			})
			synctest.Wait()
			if dice.IntN(8) == 0 {
				time.Sleep(time.Duration(dice.IntN(100)) * time.Millisecond)
			}
		}
		all.Wait()
		assert.True(t, slices.IsSorted(ends), ends)
		assert.Greater(t, guaranteed, 10)
		assert.Greater(t, borrowed, 10)
		st := s.Stats()
		assert.EqualValues(t, 202, st.Guaranteed+st.Borrowed+st.Refused, "each once")
	})
}

// A waiting call takes from its own funnel as soon as that has room, also if another tenant's large call is next.
func TestWaitingCallTakesItsGuarantee(t *testing.T) {
	config := waitingTenants(1, 1, 1)
	config.Total, config.Reserved = funnel(100, 10, time.Second), funnel(50, 5, time.Second)
	config.Guarantee = func(tenant int) policy.Policy {
		if tenant == 0 {
			return funnel(40, 4, time.Second)
		}
		return nil
	}
	inBubble(t, config, func(t *testing.T, s *Shares[int]) {
		require.True(t, s.Take(1, 50).Borrowed)
		require.False(t, s.Take(0, 40).Borrowed)
		began := time.Now()
		var all sync.WaitGroup
		all.Go(func() { // 50 units have room in the group after 9 s
			r, err := s.Acquire(t.Context(), 1, 50, policy.Never)
			assert.NoError(t, err)
			assert.True(t, r.Borrowed)
			assert.Equal(t, 9500*time.Millisecond, time.Since(began).Round(time.Millisecond))
			assert.Equal(t, time.Since(began), r.Waited)
		})
		synctest.Wait()
		assert.False(t, s.Take(2, 1).Allowed)
		assert.False(t, s.Take(0, 1).Allowed)
		all.Go(func() { // after 0.5 s
			r, err := s.Acquire(t.Context(), 0, 2, policy.Never)
			assert.NoError(t, err)
			assert.False(t, r.Borrowed)
			assert.Equal(t, 500*time.Millisecond, time.Since(began).Round(time.Millisecond))
		})
		synctest.Wait()
		time.Sleep(501 * time.Millisecond)
		synctest.Wait()
		require.False(t, s.Take(0, 2).Allowed)
		time.Sleep(750 * time.Millisecond)
		d := s.Take(0, 3)
		assert.True(t, d.Allowed && !d.Borrowed, "the guarantee stays open")
		all.Wait()
	})
}

// Promise: While a call waits for the group, calls that do not wait do not borrow.
func TestCallsThatDoNotWaitDoNotPass(t *testing.T) {
	config := waitingTenants(1, 1)
	inBubble(t, config, func(t *testing.T, s *Shares[int]) {
		require.True(t, s.Take(0, 15).Borrowed)
		ctx, cancel := context.WithCancel(t.Context())
		var err error
		go func() { err = s.Wait(ctx, 1, 20) }()
		synctest.Wait()
		assert.Equal(t, 1, s.Stats().Waiting)
		d := s.Take(0, 1)
		assert.Equal(t, policy.Decision{Limit: 20, RetryAfter: 1}, d.Decision, "there is room, and a call waits for it")
		assert.Equal(t, d, s.Peek(0, 1))
		assert.Equal(t, 10*time.Millisecond, s.Take(0, 6).RetryAfter)
		assert.False(t, s.Reserve(0, 1, time.Hour).Allowed)
		assert.Equal(t, policy.Never, s.Take(0, 21).RetryAfter)
		assert.True(t, s.Take(0, 0).Allowed)
		r, e := s.Acquire(t.Context(), 1, 1, 0)
		require.ErrorIs(t, e, ErrDeadline)
		assert.Equal(t, time.Duration(1), r.RetryAfter)
		cancel()
		synctest.Wait()
		require.ErrorIs(t, err, ErrCancelled)
		assert.True(t, s.Take(0, 1).Borrowed, "at once")
	})
}

// Promise: A waiting call that only its ceiling holds does not keep others from borrowing.
func TestCallHeldByItsCeilingLetsOthersGo(t *testing.T) {
	config := waitingTenants(1, 1, 1)
	config.Ceiling = func(tenant int) policy.Policy {
		if tenant == 0 {
			return funnel(5, 1, time.Second)
		}
		return nil
	}
	inBubble(t, config, func(t *testing.T, s *Shares[int]) {
		require.True(t, s.Take(0, 5).Borrowed)
		began := time.Now()
		var all sync.WaitGroup
		acquire := func(tenant int, n int64, after time.Duration) {
			all.Go(func() {
				_, err := s.Acquire(t.Context(), tenant, n, policy.Never)
				assert.NoError(t, err)
				assert.Equal(t, after, time.Since(began).Round(time.Millisecond), "tenant %d", tenant)
			})
			synctest.Wait()
		}
		acquire(0, 2, 2*time.Second)
		assert.True(t, s.Take(1, 5).Borrowed)
		assert.True(t, s.Take(1, 10).Borrowed)
		acquire(1, 7, 70*time.Millisecond)
		assert.False(t, s.Choke(2))
		all.Wait()

		// A ceiling that is lowered under the call that is next has the others go on.
		time.Sleep(10 * time.Second)
		began = time.Now()
		require.True(t, s.Take(1, 20).Borrowed)
		acquire(0, 1, 5*time.Second)
		acquire(1, 3, 30*time.Millisecond)
		require.NoError(t, s.SetCeiling(0, funnel(5, 1, 5*time.Second)))
		require.NoError(t, s.SetCeiling(2, nil))
		ceiling := s.ceilings.load(0)
		ceiling.word.Store(ceiling.limit.(policy.Refunder).Refund(0, s.now(), -5))
		all.Wait()
	})
}

func TestWaitOfSharesFailsWithItsReason(t *testing.T) {
	config := waitingTenants(1, 1, 1, 1, 1)
	config.Config.MaxWaiting, config.Config.MaxWaitingTotal = 2, 3
	inBubble(t, config, func(t *testing.T, s *Shares[int]) {
		require.True(t, s.Take(0, 20).Borrowed)
		began := time.Now()
		is := func(want error, r ShareReservation[int], err error) {
			t.Helper()
			require.ErrorIs(t, err, want)
			assert.False(t, r.Allowed)
			assert.Positive(t, r.RetryAfter)
		}
		for _, n := range []int64{-1, 21} {
			for _, patience := range []time.Duration{0, policy.Never} {
				r, err := s.Acquire(t.Context(), 0, n, patience)
				is(ErrNever, r, err)
			}
		}
		r, err := s.Acquire(t.Context(), 0, 5, 49*time.Millisecond)
		is(ErrDeadline, r, err)
		ctx, cancel := context.WithTimeout(t.Context(), 49*time.Millisecond)
		r, err = s.Acquire(ctx, 0, 5, policy.Never)
		is(ErrDeadline, r, err)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		cancel()
		r, err = s.Acquire(ctx, 0, 5, policy.Never)
		is(ErrCancelled, r, err)
		ends := make([]error, 3)
		for i := range ends {
			go func() { ends[i] = s.Wait(t.Context(), i/2, 20) }()
			synctest.Wait()
		}
		// Behind the calls in line, also of other tenants, whose turn comes first.
		r, err = s.Acquire(t.Context(), 0, 1, 409*time.Millisecond)
		is(ErrDeadline, r, err)
		r, err = s.Acquire(t.Context(), 0, 1, policy.Never)
		is(ErrCrowded, r, err)
		r, err = s.Acquire(t.Context(), 4, 20, policy.Never)
		is(ErrCrowded, r, err)
		assert.Zero(t, time.Since(began))
		assert.Equal(t, 3, s.Stats().Waiting)
		time.Sleep(201 * time.Millisecond)
		synctest.Wait()
		require.NoError(t, ends[0])
		require.NoError(t, s.Close())
		synctest.Wait()
		for _, err := range ends[1:] {
			require.ErrorIs(t, err, ErrClosed)
		}
		_, err = s.Acquire(t.Context(), 4, 20, policy.Never)
		require.ErrorIs(t, err, ErrClosed)
	})
}

// A give-back has the next call look again.
func TestGivenBackUnitsServeWaitingCalls(t *testing.T) {
	config := waitingTenants(1, 1)
	inBubble(t, config, func(t *testing.T, s *Shares[int]) {
		r := s.Reserve(0, 20, 0)
		require.True(t, r.Borrowed)
		began := time.Now()
		var waited time.Duration
		go func() {
			assert.NoError(t, s.Wait(t.Context(), 1, 20))
			waited = time.Since(began)
		}()
		synctest.Wait()
		time.Sleep(time.Millisecond)
		r.Cancel()
		synctest.Wait()
		assert.Equal(t, time.Millisecond, waited)
	})
}

func TestTenantsThatCannotBeKeptWait(t *testing.T) {
	inBubble(t, SharesConfig[any]{Total: funnel(20, 100, time.Second)}, func(t *testing.T, s *Shares[any]) {
		require.True(t, s.Take("x", 20).Borrowed)
		var all sync.WaitGroup
		for _, key := range []any{math.NaN(), []int{1}, "x"} {
			all.Go(func() { assert.NoError(t, s.Wait(t.Context(), key, 5)) })
		}
		began := time.Now()
		all.Wait()
		assert.InDelta(t, 150*time.Millisecond, time.Since(began), 5e6)
	})
}

// Promise: `Shares.Acquire` refuses no call as late that would be served in time.
func TestForecastIsLowerBound(t *testing.T) {
	early := 0
	for seed := range uint64(150) {
		// run has calls wait, and then the last one with a patience.
		run := func(patience time.Duration) (waited time.Duration, err error) {
			config := waitingTenants(1, 2, 3, 4, 5, 6)
			config.Total, config.Reserved = funnel(60, 100, time.Second), funnel(40, 50, time.Second)
			config.Guarantee = func(tenant int) policy.Policy {
				if tenant < 3 {
					return funnel(10, 5*int64(1+tenant), time.Second)
				}
				return nil
			}
			config.Ceiling = func(tenant int) policy.Policy {
				if tenant == 1 || tenant == 4 {
					return funnel(20, 30, time.Second)
				}
				return nil
			}
			inBubble(t, config, func(t *testing.T, s *Shares[int]) {
				dice := rand.New(rand.NewPCG(seed, 5))
				s.Take(5, 20)
				var all sync.WaitGroup
				for range 1 + dice.IntN(30) {
					tenant, n := dice.IntN(6), 1+dice.Int64N(10)
					all.Go(func() { assert.NoError(t, s.Wait(t.Context(), tenant, n)) })
					synctest.Wait()
					time.Sleep(time.Duration(dice.IntN(30)) * time.Millisecond)
				}
				began := time.Now()
				_, err = s.Acquire(t.Context(), dice.IntN(6), 1+dice.Int64N(10), patience)
				waited = time.Since(began)
				all.Wait()
			})
			return waited, err
		}
		waited, err := run(policy.Never)
		require.NoError(t, err)
		// Calls that look at the same instant may be served in another order, and so the call too late.
		if again, err := run(waited + 1); err != nil {
			require.ErrorIs(t, err, ErrDeadline)
			require.Greater(t, again, waited, "seed %d", seed)
		}
		if soon, err := run(waited / 3); err != nil && soon == 0 {
			early++
		}
	}
	assert.Greater(t, early, 50, "calls that are refused at once")
}

// Calls of all kinds come and go. The group never exceeds its bound, and no call is left in line.
func TestSharesHoldTheirBoundWhileCallsWait(t *testing.T) {
	weights := []float64{1, 2, 3, 1, 2, 3, 1, 2}
	config := waitingTenants(weights...)
	config.Total, config.Reserved = funnel(60, 1000, time.Second), funnel(40, 500, time.Second)
	config.Guarantee = func(tenant int) policy.Policy {
		if tenant < 5 {
			return funnel(8, 60, time.Second)
		}
		return nil
	}
	config.Ceiling = func(tenant int) policy.Policy {
		if tenant%3 == 0 {
			return funnel(15, 100, time.Second)
		}
		return nil
	}
	config.Config.MaxWaiting = 6
	inBubble(t, config, func(t *testing.T, s *Shares[int]) {
		audit := newLevelAudit(config.Total)
		var mu sync.Mutex
		began := time.Now()
		kinds := map[string]int{}
		note := func(kind string, n int64) {
			mu.Lock()
			defer mu.Unlock()
			kinds[kind]++
			audit.add(policy.Instant(time.Since(began)+1), n)
		}
		var all sync.WaitGroup
		for i := range 60 {
			all.Go(func() {
				dice := rand.New(rand.NewPCG(testenv.Seed(t), uint64(i)))
				for range 100 {
					tenant, n := dice.IntN(len(weights)), 1+dice.Int64N(8)
					switch dice.IntN(6) {
					case 0:
						if s.Take(tenant, n).Allowed {
							note("taken", n)
						}
					case 1:
						if r := s.Reserve(tenant, n, 0); r.Allowed {
							r.Cancel()
							note("reserved", 0)
						}
					default:
						ctx, cancel := context.WithCancel(t.Context())
						if dice.IntN(3) == 0 {
							time.AfterFunc(time.Duration(dice.IntN(50))*time.Millisecond, cancel)
						}
						_, err := s.Acquire(ctx, tenant, n, time.Duration(dice.IntN(200))*time.Millisecond)
						cancel()
						switch {
						case err == nil:
							note("acquired", n)
						case errors.Is(err, ErrDeadline):
							note("late", 0)
						case errors.Is(err, ErrCancelled):
							note("cancelled", 0)
						default:
							assert.ErrorIs(t, err, ErrCrowded)
							note("crowded", 0)
						}
					}
					time.Sleep(time.Duration(dice.IntN(int(20 * time.Millisecond))))
				}
			})
		}
		all.Wait()
		t.Log(audit.units(), kinds, s.Stats())
		assert.LessOrEqual(t, audit.units(), int64(60))
		for _, kind := range []string{"taken", "reserved", "acquired", "late", "cancelled", "crowded"} {
			assert.Greater(t, kinds[kind], 10, kind)
		}
	})
}
