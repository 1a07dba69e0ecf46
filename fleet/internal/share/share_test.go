package share

import (
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/policy"
)

// Promise: Shares take under 70 bytes a key, and a name for debts.
func TestKnownKeyTakesUnder70Bytes(t *testing.T) {
	const keys = 200_000
	names := make([]string, keys)
	for i := range names {
		names[i] = strings.Repeat("x", 128-len(strconv.Itoa(i))) + strconv.Itoa(i)
	}
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	l, err := New(Config{Policy: policy.Must(policy.Funnel(10, 1, time.Hour)), Servers: 1, MaxKeys: keys, Name: func(k string) string { return "{" + k + "}" }})
	require.NoError(t, err)
	before := heap()
	for _, name := range names {
		l.Learn(name, 0, redisTime(l.now()))
	}
	known := heap()
	for _, name := range names {
		l.Take(name, 1, 0)
	}
	shares := heap()
	perWord, perShare := float64(known-before)/keys, float64(shares-known)/keys
	t.Logf("%.0f bytes a word of Redis's, %.0f a share with a name of 130 bytes", perWord, perShare)
	require.Less(t, perWord, 70.0)
	require.Less(t, perShare, 110.0*4/3+144)
	runtime.KeepAlive(l)
	runtime.KeepAlive(names)
}

func TestLearningAllocatesNothing(t *testing.T) {
	l := open(t, policy.Must(policy.Funnel(10, 1, time.Hour)), 1, "a")
	now := redisTime(l.now())
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		now++
		l.Learn("a", 1, now)
	}))
}

func TestTakeAllOfShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		five := open(t, policy.Must(policy.Funnel(5, 1, time.Hour)), 1, "a", "b")
		two := open(t, policy.Must(policy.FixedWindow(2, time.Hour)), 1, "a")
		queue := open(t, policy.Must(policy.Queue(5, 1, time.Hour)), 1, "a")
		for i, c := range []struct {
			claims []Claim
			// allowed says whether all claims are allowed, and each claim.
			allowed []bool
			// a and b are the units that remain of five.
			a, b int64
		}{
			{[]Claim{{five, "a", 2}, {two, "a", 2}, {five, "b", 2}}, []bool{true, true, true, true}, 3, 3},
			{[]Claim{{five, "a", 1}, {two, "a", 1}}, []bool{false, true, false}, 3, 3},
			// The same key is charged twice.
			{[]Claim{{five, "a", 2}, {five, "a", 2}}, []bool{false, true, false}, 3, 3},
			{[]Claim{{five, "a", 2}, {five, "b", 1}, {five, "a", 0}}, []bool{true, true, true, true}, 1, 2},
			{[]Claim{{queue, "a", 1}}, []bool{true, true}, 1, 2},
			// The call would have to wait.
			{[]Claim{{queue, "a", 1}}, []bool{false, false}, 1, 2},
			{[]Claim{{five, "a", 0}, {two, "a", 0}}, []bool{true, true, true}, 1, 2},
		} {
			answers, all := TakeAll(c.claims...)
			allowed := []bool{all}
			for _, a := range answers {
				allowed = append(allowed, a.Allowed)
			}
			require.Equal(t, c.allowed, allowed, i)
			require.Equal(t, []int64{c.a, c.b}, []int64{five.Peek("a", 0).Remaining, five.Peek("b", 0).Remaining}, i)
		}
		require.Equal(t, map[string]int64{"a": 1}, owed(queue))
	})
}

func TestRacingCallersShareExactly(t *testing.T) {
	keys := []string{"a", "b", "c", "d"}
	l := open(t, policy.Must(policy.FixedWindow(1000, time.Hour)), 2, keys...)
	other := open(t, policy.Must(policy.FixedWindow(1000, time.Hour)), 2, keys...)
	var admitted atomic.Int64
	var all sync.WaitGroup
	for worker := range uint64(8) {
		all.Go(func() {
			random := rand.New(rand.NewPCG(worker, 0))
			for i := range 2000 {
				key, allowed := keys[random.IntN(len(keys))], false
				switch i % 4 {
				case 0:
					r := l.Take(key, 1, 0)
					r.Cancel()
				case 1:
					claims := []Claim{{l, key, 1}, {other, key, 1}}
					random.Shuffle(2, func(i, j int) { claims[i], claims[j] = claims[j], claims[i] })
					_, allowed = TakeAll(claims...)
				case 2:
					l.Learn(key, 0, redisTime(l.now()))
					_ = l.Serve(2)
				default:
					allowed = l.Take(key, 1, 0).Allowed
				}
				if allowed {
					admitted.Add(1)
				}
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 4*500, admitted.Load())
	require.Equal(t, map[string]int64{"a": 500, "b": 500, "c": 500, "d": 500}, owed(l))
}
