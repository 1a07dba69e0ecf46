package share

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/fleet/internal/share/part"
	"github.com/ral-limiter/ral/internal/core/statefile"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/policy"
)

func saved(t testing.TB, l *Local, owner string) []byte {
	t.Helper()
	var file bytes.Buffer
	require.NoError(t, l.Save(&file, owner))
	return file.Bytes()
}

func restarted(t testing.TB, file []byte, c Config) *Local {
	t.Helper()
	l := must.Get(New(c))
	require.NoError(t, l.Load(bytes.NewReader(file), "x"))
	return l
}

// debts returns the debts of a share by name.
func debts(l *Local) map[string]int64 {
	all := map[string]int64{}
	for d := range l.Owed() {
		all[d.Name] += d.Units
	}
	l.Unpaid()
	return all
}

func plain(key string) string { return key }

var files = map[string]policy.Policy{
	"funnel":  policy.Must(policy.Funnel(100, 10, time.Second)),
	"queue":   policy.Must(policy.Queue(100, 10, time.Second)),
	"bursty":  policy.Must(policy.Bursty(10, time.Second, 50)),
	"fixed":   policy.Must(policy.FixedWindow(100, 10*time.Second)),
	"sliding": policy.Must(policy.SlidingWindow(100, 10*time.Second)),
}

// Two shares get the same calls at the same times. One is restarted now and then, for as many
// servers or others. Both decide alike, to the nanosecond, and owe the same.
func TestRestartChangesNoAnswer(t *testing.T) {
	simulated(t, slices.Collect(maps.Values(files)), func(t *testing.T, p policy.Policy) {
		c := Config{Policy: p, Servers: 3, MaxKeys: 100, Name: plain}
		on := must.Get(New(c))
		again := must.Get(New(c))
		random := rand.New(rand.NewPCG(1, 2))
		restarts, admitted := 0, 0
		hear := func() {
			on.Heard(on.now())
			again.Heard(again.now())
		}
		hear()
		for step := range 3000 {
			time.Sleep(time.Duration(random.Int64N(int64(40 * time.Millisecond))))
			key, n := fmt.Sprint("key", random.IntN(4)), random.Int64N(3)
			a, b := on.Take(key, n, 0), again.Take(key, n, 0)
			require.Equal(t, a.Decision, b.Decision, "step %d", step)
			require.Equal(t, debts(on), debts(again), "step %d", step)
			if a.Allowed && n > 0 {
				admitted++
			}
			if random.IntN(50) > 0 {
				continue
			}
			file := saved(t, again, "x")
			time.Sleep(time.Duration(random.Int64N(int64(300 * time.Millisecond))))
			if c.Servers = random.IntN(5) + 1; step%2 == 0 {
				again = restarted(t, file, c)
				// Servers are counted later.
			} else {
				uncounted := c
				uncounted.Servers = 0
				again = restarted(t, file, uncounted)
				require.Empty(t, debts(again))
				require.False(t, again.Take(key, 1, 0).Allowed)
				again = restarted(t, saved(t, again, "x"), uncounted)
				require.NoError(t, again.Serve(c.Servers))
			}
			require.NoError(t, on.Serve(c.Servers))
			// After a restart a server knows nothing of a key without debt.
			hear()
			restarts++
		}
		assert.Greater(t, restarts, 20)
		assert.Greater(t, admitted, 100)
	})
}

// Paid units are not in the file; the others are charged once. Each change of them is a change.
func TestFileHoldsDebts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := Config{Policy: policy.Must(policy.FixedWindow(100, time.Hour)), Servers: 1, MaxKeys: 100, Name: plain}
		l := must.Get(New(c))
		require.False(t, l.Changed())
		for _, key := range []string{"a", "b", "c", "d"} {
			l.Learn(key, 0, l.now())
			require.True(t, l.Take(key, 5, 0).Allowed)
		}
		var file []byte
		for _, change := range []func(){
			// The first change is the takes.
			func() {},
			func() { require.Len(t, pay(l, "a"), 3) },
			func() { require.EqualValues(t, 2, l.Credit("b", 2)) },
			func() { l.Reset("d") },
		} {
			change()
			require.True(t, l.Changed())
			file = saved(t, l, "x")
			require.False(t, l.Changed())
		}
		require.Equal(t, map[string]int64{"b": 3, "c": 5}, debts(restarted(t, file, c)))
		require.False(t, restarted(t, file, c).Take("a", 1, 0).Allowed, "a key that is not in the file is unknown")
		time.Sleep(time.Hour)
		require.Empty(t, debts(restarted(t, file, c)), "it has drained")
		r := l.Take("e", 1, 0)
		require.True(t, r.Allowed)
		saved(t, l, "x")
		r.Cancel()
		require.True(t, l.Changed())
		broken := errors.New("broken")
		require.ErrorIs(t, l.Save(writer(func([]byte) (int, error) { return 0, broken }), "x"), broken)
		require.True(t, l.Changed(), "a failed save leaves all as it was")
	})
}

// The wall clock decides how much of a share comes back while the server is away. If it went back,
// nothing does, and the share lasts no longer.
// Promise: A wall clock set back during downtime grants nothing.
func TestWallClockMayGoBack(t *testing.T) {
	c := Config{Policy: policy.Must(policy.Funnel(100, 1, time.Hour)), Servers: 1, MaxKeys: 100, Name: plain}
	key := appendKey(nil, loaded{entry: entry{part.State{Unpaid: 10}, "a"}, from: &part.Part{Servers: 1}})
	for _, back := range []time.Duration{-24 * time.Hour, -time.Hour, 0, time.Hour, 24 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			last := policy.Instant(2 * time.Hour)
			var file bytes.Buffer
			to := must.Get(statefile.NewWriter(&file, statefile.Header{
				Epoch: time.Now().Add(back - time.Duration(last)), Limit: c.Policy.String(), Codec: codec("x"),
			}))
			require.NoError(t, to.Add(key, uint64(last+policy.Instant(10*time.Hour))*16, 0))
			require.NoError(t, to.Close(last))
			l := restarted(t, file.Bytes(), c)
			want := int64(10)
			// The age of the file counts.
			if back < 0 {
				want = max(10+int64(back/time.Hour), 0)
			}
			require.Equal(t, want, debts(l)["a"], "%v", back)
			if want > 0 {
				require.Equal(t, 100-want, l.Peek("a", 0).Remaining, "%v", back)
			}
		})
	}
}

// Another limit charges the debts from now on, unless they would have drained.
func TestFileOfAnotherLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := Config{Policy: policy.Must(policy.Funnel(100, 1, time.Minute)), Servers: 1, MaxKeys: 100, Name: plain}
		l := must.Get(New(c))
		l.Learn("a", 0, l.now())
		require.True(t, l.Take("a", 5, 0).Allowed)
		file := saved(t, l, "x")
		c.Policy = policy.Must(policy.FixedWindow(50, time.Hour))
		time.Sleep(30 * time.Minute)
		next := restarted(t, file, c)
		require.Equal(t, map[string]int64{"a": 5}, debts(next))
		require.EqualValues(t, 45, next.Peek("a", 0).Remaining)
		time.Sleep(30 * time.Minute)
		require.Empty(t, debts(restarted(t, file, c)))
	})
}

// Instants end. A file of a share that began long ago is read too.
func TestFileOfLongAgo(t *testing.T) {
	simulated(t, slices.Collect(maps.Values(files)), func(t *testing.T, p policy.Policy) {
		c := Config{Policy: p, Servers: 1, MaxKeys: 100, Name: plain}
		l := must.Get(New(c))
		first := l.base
		restarts := 0
		for range 30 {
			time.Sleep(60 * 24 * time.Hour)
			l.Learn("a", 0, l.now())
			require.True(t, l.Take("a", 5, 0).Allowed)
			owed := debts(l)
			if l = restarted(t, saved(t, l, "x"), c); l.base == first {
				restarts++
			}
			require.Equal(t, owed, debts(l))
		}
		require.Less(t, l.now(), first+2*policy.Instant(lasting))
		require.Greater(t, restarts, 2)
	})
}

func TestFilesThatAreRefused(t *testing.T) {
	c := Config{Policy: files["funnel"], Servers: 1, MaxKeys: 100, Name: plain}
	l := must.Get(New(c))
	l.Learn("a", 0, l.now())
	require.True(t, l.Take("a", 5, 0).Allowed)
	file := saved(t, l, "x")
	next := must.Get(New(c))
	err := next.Load(bytes.NewReader(saved(t, l, "another")), "x")
	require.ErrorIs(t, err, ErrForeign)
	require.ErrorContains(t, err, "of another")
	require.ErrorIs(t, next.Load(bytes.NewReader(file[:len(file)-1]), "x"), statefile.ErrCorrupt)
	for _, key := range []string{"", "\x01", "\x01\x05", "\x01\x05\x00", "\x01\x00\x00a", "\xff\xff\xff\xff\xff\x01\x05\x00a", "\x01" + strings.Repeat("\xff", 9) + "\x01\x00a"} {
		var to bytes.Buffer
		w := must.Get(statefile.NewWriter(&to, statefile.Header{Epoch: time.Now(), Limit: c.Policy.String(), Codec: codec("x")}))
		require.NoError(t, w.Add([]byte(key), 1, 0))
		require.NoError(t, w.Close(1))
		require.ErrorIs(t, next.Load(&to, "x"), statefile.ErrCorrupt, "%q", key)
	}
	require.Empty(t, debts(next), "nothing was read")
}

// A smaller table reports the units without room.
func TestFileOfMoreKeys(t *testing.T) {
	c := Config{Policy: files["funnel"], Servers: 1, MaxKeys: 1000, Name: plain}
	l := must.Get(New(c))
	for i := range 500 {
		l.Learn(fmt.Sprint(i), 0, l.now())
		require.True(t, l.Take(fmt.Sprint(i), 2, 0).Allowed)
	}
	c.MaxKeys = 100
	next := restarted(t, saved(t, l, "x"), c)
	require.LessOrEqual(t, len(debts(next)), 100)
	require.EqualValues(t, 1000, 2*len(debts(next))+int(next.Lapsed()))
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }
