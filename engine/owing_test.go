package engine

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/policy"
)

// owingAll returns the whole list in pages of n, calling between for each page.
func owingAll[K comparable](t testing.TB, e *Engine[K], n int, between func()) (all []OwingKey[K]) {
	t.Helper()
	var cursor OwingCursor
	for first := true; first || !cursor.IsZero(); first = false {
		page := e.MostUsed(n, cursor)
		require.LessOrEqual(t, len(page.Keys), n)
		all = append(all, page.Keys...)
		cursor = page.Next
		if between != nil {
			between()
		}
	}
	return all
}

// Pages of every size give the keys of All, though time passes between them.
//
// Promise: Pages of owing keys form the whole list, in order.
func TestOwingPagesContinueExactly(t *testing.T) {
	for name, limit := range map[string]policy.Policy{
		"funnel": funnel(50, 1, time.Second),
		// Most keys owe for equally long.
		"window":  policy.Must(policy.FixedWindow(50, time.Minute)),
		"sliding": policy.Must(policy.SlidingWindow(50, time.Minute)),
		"at most": policy.Must(policy.AtMost(50, time.Minute)),
		"bursty":  policy.Must(policy.Bursty(1, time.Second, 50)),
		"queue":   policy.Must(policy.Queue(50, 1, time.Second)),
	} {
		t.Run(name, func(t *testing.T) {
			clock := newHandClock()
			e := open[string](t, Config{Policy: limit, Clock: clock.Now})
			r := rand.New(rand.NewPCG(1, 1))
			for _, key := range keys(400) {
				e.Take(key, r.Int64N(51)+1)
				if r.IntN(4) == 0 {
					clock.Advance(time.Duration(r.Int64N(int64(time.Second))))
				}
			}
			for _, key := range []string{"never used", "given back"} {
				e.Peek(key, 0)
			}
			e.Take("given back", 5)
			e.Reset("given back")
			settled(t, e)

			most := shape.AtOnce(limit)
			want := map[string]policy.Decision{}
			now := clock.Now()
			for key, d := range e.All() {
				if d.ResetAfter > 0 && key != "given back" {
					want[key] = d
				}
			}
			require.Greater(t, len(want), 100)
			var lists [][]OwingKey[string]
			for _, n := range []int{1, 7, len(want) - 1, len(want), 10_000} {
				list := owingAll(t, e, n, func() { clock.Advance(time.Duration(r.Int64N(100))) })
				clock.now.Store(int64(now))
				assert.Len(t, list, len(want))
				assert.True(t, slices.IsSortedFunc(list, func(a, b OwingKey[string]) int {
					return cmp.Or(cmp.Compare(b.Share, a.Share), cmp.Compare(b.ResetAfter, a.ResetAfter))
				}))
				for _, k := range list {
					d := want[k.Key]
					require.Equal(t, d, k.Decision, k.Key)
					assert.InDelta(t, float64(most-d.Remaining)/float64(most), k.Share, 1e-9)
					assert.Equal(t, limit, k.Limit)
					requireNextUnit(t, e, k, now)
				}
				lists = append(lists, list)
			}
			for _, list := range lists[1:] {
				assert.Equal(t, lists[0], list)
			}
			page := e.MostUsed(0, OwingCursor{})
			assert.Equal(t, []any{0, len(want), true}, []any{len(page.Keys), page.Total, page.Next.IsZero()})

			// A page in parts is the same list.
			page = e.MostUsed(10, OwingCursor{})
			clock.Advance(time.Minute)
			rest := e.MostUsed(10_000, page.Keys[3].After)
			clock.now.Store(int64(now))
			assert.Equal(t, lists[0][4:], rest.Keys)
			assert.Equal(t, page.Next, page.Keys[9].After)
		})
	}
}

// requireNextUnit checks that a key's next unit can be taken after its Next, not a nanosecond
// before. now is the instant of the list.
func requireNextUnit(t *testing.T, e *Engine[string], k OwingKey[string], now policy.Instant) {
	t.Helper()
	require.Positive(t, k.Next, k.Key)
	state := e.cell.Standing(nil, k.Key, 1).Word
	remaining := func(after time.Duration) int64 {
		_, d := k.Limit.Take(state, now+policy.Instant(after), 0, 0)
		return d.Remaining
	}
	require.Greater(t, remaining(k.Next), k.Remaining, k.Key)
	require.Equal(t, k.Remaining, remaining(k.Next-1), k.Key)
}

// Promise: Each key is ranked by its own limit.
func TestOwingGoesByTheKeysOwnLimits(t *testing.T) {
	clock := newHandClock()
	own := map[string]policy.Policy{
		"large": funnel(1000, 1, time.Second), "small": funnel(10, 1, time.Second),
		"other family": policy.Must(policy.FixedWindow(5, time.Minute)),
	}
	// asked needs no lock, because PolicyFor is called on the caller's goroutine alone.
	asked := 0
	e := openFor(t, Config{Policy: funnel(100, 1, time.Second), Clock: clock.Now}, func(key string) policy.Policy {
		asked++
		return own[key]
	})
	e.Take("large", 300)
	e.Take("small", 9)
	e.Take("own", 50)
	other := own["other family"]
	own["other family"] = nil
	e.Take("other family", 40)
	own["other family"] = other
	var shares []string
	for _, k := range e.MostUsed(10, OwingCursor{}).Keys {
		shares = append(shares, fmt.Sprintf("%s %.2f of %v", k.Key, k.Share, k.Limit))
	}
	assert.Equal(t, []string{
		"small 0.90 of funnel 10, 1/s", "own 0.50 of funnel 100, 1/s",
		"other family 0.40 of funnel 100, 1/s", "large 0.30 of funnel 1000, 1/s",
	}, shares)
	assert.NotZero(t, asked)
}

func TestOwingTellsAgeAndBlocks(t *testing.T) {
	clock := newHandClock()
	e := open[string](t, Config{Policy: funnel(10, 1, time.Second), Clock: clock.Now})
	e.Choke("a")
	e.Take("b", 2)
	require.NoError(t, e.Block("a", time.Minute))
	page := e.MostUsed(1, OwingCursor{})
	assert.Zero(t, page.Age)
	assert.Zero(t, page.Keys[0].Blocked)
	clock.Advance(700 * time.Millisecond)
	page = e.MostUsed(1, page.Next)
	assert.Equal(t, 700*time.Millisecond, page.Age)
	assert.Equal(t, time.Second, page.Keys[0].Next, "the next unit must be timed from the instant of the list")
	assert.Equal(t, time.Minute-700*time.Millisecond, page.Keys[0].Blocked, "the block must be timed from now on")
	assert.Zero(t, e.MostUsed(1, OwingCursor{}).Age)
	require.NoError(t, e.Close())
	page = e.MostUsed(10, OwingCursor{})
	assert.Equal(t, []int{0, 0}, []int{len(page.Keys), page.Total})
	assert.True(t, page.Next.IsZero())
}

// Promise: A list needs memory for one page.
func TestOwingNeedsMemoryForAPage(t *testing.T) {
	e := open[string](t, Config{Policy: funnel(10, 1, time.Hour)})
	for _, key := range keys(20_000) {
		e.Choke(key)
	}
	settled(t, e)
	e.Take(keys(1)[0], 5)
	assert.Less(t, testing.AllocsPerRun(3, func() { e.MostUsed(10, OwingCursor{}) }), 100.0)
}

func TestOwingCursorAsText(t *testing.T) {
	clock := newHandClock()
	e := open[string](t, Config{Policy: funnel(10, 1, time.Second), Clock: clock.Now})
	for i, key := range keys(5) {
		e.Take(key, int64(i)+1)
	}
	next := e.MostUsed(2, OwingCursor{}).Next
	text, err := next.MarshalText()
	require.NoError(t, err)
	assert.Regexp(t, `^[0-9a-f.]+$`, string(text))
	var read OwingCursor
	require.NoError(t, read.UnmarshalText(text))
	assert.Equal(t, next, read)
	assert.Equal(t, e.MostUsed(2, next), e.MostUsed(2, read))

	require.NoError(t, read.UnmarshalText(nil))
	assert.True(t, read.IsZero())

	for _, bad := range []string{" ", "x", "1.2.3", "1.2.3.4.5", "0.1.2.3", "-1.1.2.3", "1.2.3.4 ", "01.2.3.4", "1.2.3.fffffffffffffffff", "1.2.3.A",
		// Shares that are not 0 to 1: a NaN, infinity, 2 and -1.
		"1.7ff8000000000001.1.1", "1.7ff0000000000000.1.1", "1.4000000000000000.1.1", "1.bff0000000000000.1.1"} {
		was := next
		err := was.UnmarshalText([]byte(bad))
		var field *policy.FieldError
		if assert.ErrorAs(t, err, &field, "%q", bad) {
			assert.Equal(t, "text", field.Field)
		}
		assert.Equal(t, next, was, "a cursor that is refused must stay as before")
	}
}

func FuzzOwingCursor(f *testing.F) {
	f.Add("1.3ff0000000000000.2.3")
	f.Add("1.7ff8000000000001.1.1")
	f.Fuzz(func(t *testing.T, text string) {
		var c OwingCursor
		if c.UnmarshalText([]byte(text)) != nil {
			return
		}
		again, err := c.MarshalText()
		require.NoError(t, err)
		assert.Equal(t, text, string(again))
		var other OwingCursor
		require.NoError(t, other.UnmarshalText([]byte(text)))
		assert.True(t, c == other, "equal texts must be equal cursors") //nolint:testifylint // == is what callers use
		e := open[string](t, Config{Policy: funnel(10, 1, time.Second)})
		e.Choke("a")
		assert.LessOrEqual(t, len(e.MostUsed(10, c).Keys), 1)
	})
}
