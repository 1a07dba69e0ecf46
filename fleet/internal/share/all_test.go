package share

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/policy"
)

func TestTakeAllOfShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		five := open(t, policy.Must(policy.Funnel(5, 1, time.Hour)), 1, "a", "b")
		two := open(t, policy.Must(policy.FixedWindow(2, time.Hour)), 1, "a")
		queue := open(t, policy.Must(policy.Queue(5, 1, time.Hour)), 1, "a")
		all, allowed := TakeAll(Claim{five, "a", 2}, Claim{two, "a", 2}, Claim{five, "b", 2})
		require.True(t, allowed)
		require.EqualValues(t, 3, all[0].Remaining)
		all, allowed = TakeAll(Claim{five, "a", 1}, Claim{two, "a", 1})
		require.False(t, allowed)
		require.True(t, all[0].Allowed)
		require.False(t, all[1].Allowed)
		require.EqualValues(t, 3, all[0].Remaining)
		require.EqualValues(t, 3, five.Peek("a", 0).Remaining, "nothing was taken")
		_, allowed = TakeAll(Claim{five, "a", 2}, Claim{five, "a", 2})
		require.False(t, allowed, "it is charged twice")
		_, allowed = TakeAll(Claim{five, "a", 2}, Claim{five, "b", 1}, Claim{five, "a", 0})
		require.True(t, allowed)
		require.EqualValues(t, 1, five.Peek("a", 0).Remaining)
		require.EqualValues(t, 2, five.Peek("b", 0).Remaining)
		_, allowed = TakeAll(Claim{queue, "a", 1})
		require.True(t, allowed)
		all, allowed = TakeAll(Claim{queue, "a", 1})
		require.False(t, allowed, "it would have to wait")
		require.Equal(t, time.Hour, all[0].RetryAfter)
		require.Equal(t, map[string]int64{"a": 1}, owed(queue))
		all, allowed = TakeAll(Claim{five, "a", 0}, Claim{two, "a", 0})
		require.True(t, allowed)
		require.Len(t, all, 2)
	})
}

func TestManyCallers(t *testing.T) {
	keys := []string{"a", "b", "c", "d"}
	l := open(t, policy.Must(policy.FixedWindow(1000, time.Hour)), 2, keys...)
	other := open(t, policy.Must(policy.FixedWindow(1000, time.Hour)), 2, keys...)
	admitted := make(chan int64)
	for worker := range 8 {
		go func() {
			random := rand.New(rand.NewPCG(uint64(worker), 0))
			n := int64(0)
			for i := range 2000 {
				key := keys[random.IntN(len(keys))]
				switch i % 4 {
				case 0:
					r := l.Take(key, 1, 0)
					r.Cancel()
				case 1:
					claims := []Claim{{l, key, 1}, {other, key, 1}}
					random.Shuffle(2, func(i, j int) { claims[i], claims[j] = claims[j], claims[i] })
					if _, allowed := TakeAll(claims...); allowed {
						n++
					}
				case 2:
					l.Learn(key, 0, redisTime(l.now()))
					_ = l.Serve(2)
				default:
					if l.Take(key, 1, 0).Allowed {
						n++
					}
				}
			}
			admitted <- n
		}()
	}
	total := int64(0)
	for range 8 {
		total += <-admitted
	}
	require.EqualValues(t, 4*500, total)
	charged := int64(0)
	for _, n := range owed(l) {
		charged += n
	}
	require.EqualValues(t, 4*500, charged)
}
