package share

import (
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/policy"
)

// Promise: Shares take under 70 bytes a key, and a name for debts.
func TestBytesAKey(t *testing.T) {
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
