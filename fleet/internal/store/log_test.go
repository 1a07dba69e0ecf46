package store_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/fleet/internal/slidinglog"
	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/policy"
)

func newLog(t testing.TB, limit int64, per time.Duration) *slidinglog.Log {
	t.Helper()
	l, err := slidinglog.New(limit, per)
	require.NoError(t, err)
	return l
}

// logModel is a plain log: all units ever taken, in nanoseconds, in order.
type logModel struct {
	limit int64
	per   int64
	units []int64
}

// take finds the first instant, from now and the last unit on, at which n more fit into every
// period.
func (m *logModel) take(now, n int64, patience time.Duration) policy.Decision {
	patience = min(max(patience, 0), 1<<58) // above 9 years it counts as 9
	d := policy.Decision{Limit: m.limit}
	last := int64(-1)
	if len(m.units) > 0 {
		last = m.units[len(m.units)-1]
	}
	earliest := max(now, last)
	candidates := []int64{earliest} // otherwise n can begin to fit only when a unit leaves
	for _, unit := range m.units {
		candidates = append(candidates, max(earliest, unit+m.per))
	}
	slices.Sort(candidates)
	var start int64
	for _, start = range candidates {
		if m.counting(start)+n <= m.limit {
			break
		}
	}
	switch wait := start - now; {
	case n < 0 || n > m.limit:
		d.RetryAfter = policy.Never
	case n == 0:
		d.Allowed = true
	case wait > int64(patience):
		d.RetryAfter = time.Duration(wait) - patience
	default:
		d.Allowed, d.Wait = true, time.Duration(wait)
		for range n {
			m.units = append(m.units, start)
		}
	}
	if len(m.units) > 0 {
		last = m.units[len(m.units)-1]
		d.ResetAfter = time.Duration(max(last+m.per-now, 0))
	}
	if last <= now {
		d.Remaining = max(m.limit-m.counting(now), 0)
	}
	return d
}

// counting counts units in the period that ends at at.
func (m *logModel) counting(at int64) int64 {
	until := func(t int64) int64 {
		n, _ := slices.BinarySearch(m.units, t+1)
		return int64(n)
	}
	return until(at) - until(at-m.per)
}

// forget drops expired units, like Redis when it records.
func (m *logModel) forget(now int64) {
	m.units = slices.DeleteFunc(m.units, func(unit int64) bool { return unit <= now-m.per })
}

// The rest of an entry keeps its time to live, even alone.
func TestRestOfAnEntryLasts(t *testing.T) {
	client := connect(t, shared)
	s := store.New(client, store.Options{Name: own(t)})
	l := limit(t, s, newLog(t, 10_000, time.Hour))
	for what, giveBack := range map[string]func(store.Taken) (store.Taken, error){
		"kept":     func(mine store.Taken) (store.Taken, error) { return s.Keep(t.Context(), l, "k", mine, 1000, 123) },
		"refunded": func(store.Taken) (store.Taken, error) { return s.Refund(t.Context(), l, "k", 877) },
	} {
		mine, err := s.Take(t.Context(), l, "k", 1000, 0)
		require.NoError(t, err)
		left, err := giveBack(mine)
		require.NoError(t, err)
		require.EqualValues(t, 10_000-123, left.Remaining, what)
		require.Positive(t, integer(t, client, "PTTL", name(t, s, l, "k")), what)
		_, err = s.Delete(t.Context(), l, "k")
		require.NoError(t, err)
	}
}

// A take keeps its first units. Units that another call returned do not come back again, nor those
// of other takes.
func TestKeepOfALog(t *testing.T) {
	var clock int64 = 1
	s := clocked(t, connect(t, shared), &clock)
	l := limit(t, s, newLog(t, 5000, time.Hour))
	used := func() int64 {
		got, err := s.Peek(t.Context(), l, "k")
		require.NoError(t, err)
		return got.Limit - got.Remaining
	}
	take := func(n int64) store.Taken {
		clock += 10_000
		got, err := s.Take(t.Context(), l, "k", n, 0)
		require.NoError(t, err)
		require.True(t, got.Allowed)
		return got
	}
	keep := func(of store.Taken, n, kept int64) {
		_, err := s.Keep(t.Context(), l, "k", of, n, kept)
		require.NoError(t, err)
	}
	first, second := take(1234), take(2222)
	keep(first, 1234, 617)
	require.EqualValues(t, 617+2222, used())
	keep(first, 1234, 617)
	require.EqualValues(t, 617+2222, used(), "they are gone")
	_, err := s.Refund(t.Context(), l, "k", 1000)
	require.NoError(t, err)
	keep(second, 2222, 1500)
	require.EqualValues(t, 617+1222, used(), "more came back before")
	keep(second, 2222, 1000)
	require.EqualValues(t, 617+1000, used())
	keep(first, 1234, -3)
	require.EqualValues(t, 1000, used())
	keep(second, 2222, 2222)
	require.EqualValues(t, 1000, used())
	keep(second, 2222, 1)
	require.EqualValues(t, 1, used())
}

// members returns the units of a log.
func members(t testing.TB, client rueidis.Client, name string) []string {
	t.Helper()
	all, err := ask(t, client, "ZRANGE", name, "0", "-1").AsStrSlice()
	require.NoError(t, err)
	return all
}

// A cancelled take returns its own units, or none if they are gone: none taken after the key
// expired, was reset, or lost its newest units.
func TestCancelOfALogIsOnesOwn(t *testing.T) {
	client := connect(t, shared)
	ctx := context.Background()
	var clock int64
	for what, lose := range map[string]func(s *store.Store, l *store.Limit){
		"expired": func(s *store.Store, l *store.Limit) {
			require.NoError(t, ask(t, client, "DEL", name(t, s, l, "k")).Error())
			clock += 3_000_000
		},
		"reset": func(s *store.Store, l *store.Limit) {
			there, err := s.Delete(ctx, l, "k")
			require.NoError(t, err)
			require.True(t, there)
			clock += 10
		},
		"reset, and the clock was set back": func(s *store.Store, l *store.Limit) {
			_, err := s.Delete(ctx, l, "k")
			require.NoError(t, err)
			clock-- // so that a number recurs
		},
		"given back": func(s *store.Store, l *store.Limit) {
			_, err := s.Refund(ctx, l, "k", 2)
			require.NoError(t, err)
			clock += 10
		},
	} {
		for _, promised := range []bool{false, true} {
			t.Run(fmt.Sprint(what, " ", promised), func(t *testing.T) {
				clock = 5_000_000
				s := clocked(t, client, &clock)
				l := limit(t, s, newLog(t, 4, time.Second))
				take := func(n int64) store.Taken {
					taken, err := s.Take(ctx, l, "k", n, time.Minute)
					require.NoError(t, err)
					require.True(t, taken.Allowed)
					return taken
				}
				if promised {
					take(4)
				}
				mine := take(2)
				require.Equal(t, promised, mine.Wait > 0)
				lose(s, l)
				take(2) // another take
				before := members(t, client, name(t, s, l, "k"))
				_, err := s.Cancel(ctx, l, "k", mine, 2)
				require.NoError(t, err)
				require.Equal(t, before, members(t, client, name(t, s, l, "k")))
				// Its own units go, wherever they are.
				own := take(1)
				take(1)
				_, err = s.Cancel(ctx, l, "k", own, 1)
				require.NoError(t, err)
				assert.Len(t, members(t, client, name(t, s, l, "k")), len(before)+1)
			})
		}
	}
}

func TestLogRefusesLimitsThatItCannotKeep(t *testing.T) {
	_, err := slidinglog.New(slidinglog.Most+1, time.Hour)
	var field *policy.FieldError
	require.ErrorAs(t, err, &field)
	assert.Equal(t, "SlidingLog", field.Of)
	_, err = slidinglog.New(0, time.Hour)
	assert.EqualError(t, err, "ral: SlidingLog: limit is 0, want 1 or more")
	_, err = slidinglog.New(1, time.Microsecond)
	assert.ErrorContains(t, err, "SlidingLog: per")
}

// In process a log is the AtMost of its figures.
func TestLogInProcess(t *testing.T) {
	log, atMost := newLog(t, 10, time.Second), policy.Must(policy.AtMost(10, time.Second))
	word, d := log.Take(0, 1, 3, 0)
	same, want := atMost.Take(0, 1, 3, 0)
	assert.Equal(t, same, word)
	assert.Equal(t, want, d)
	assert.True(t, log.Reads(newLog(t, 5, time.Second)))
	assert.True(t, log.Reads(atMost))
	carried, ok := newLog(t, 10, time.Minute).Carry(log, word, 1)
	assert.True(t, ok)
	assert.NotZero(t, carried)
	assert.Equal(t, time.Second, log.Window())
}
