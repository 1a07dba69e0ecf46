package word

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/policy"
)

const aStep = policy.Instant(1) << stepBits

func (w word) String() string {
	return fmt.Sprintf("%d units until %v, low at %d, refusing %t", w.units, time.Duration(w.ends()), w.low(), w.mark == refusing)
}

// model is a word in plain form.
type model struct {
	until policy.Instant
	units int64
	// low is -1 for never.
	low     int64
	refused bool
}

func (m *model) live(now policy.Instant) bool { return now < m.until }

func rounded(t policy.Instant) policy.Instant { return min(max(t, 0)/aStep, lastStep) * aStep }

func (m *model) take(now policy.Instant, n int64) (allowed, low bool, retry time.Duration) {
	switch {
	case n == 0:
		return true, false, 0
	case !m.live(now):
		return false, false, 0
	case m.refused:
		return false, false, time.Duration(m.until - now)
	case n < 0 || n > m.units:
		return false, false, 0
	}
	before := m.units
	m.units -= n
	return true, before > m.low && m.units <= m.low && m.low >= 0, 0
}

func (m *model) grant(g Grant) (lost int64) {
	old := m.units
	if !g.Add {
		m.units, lost = 0, old
	}
	m.units += g.Units
	if m.units > MaxUnits {
		lost += m.units - MaxUnits
		m.units = MaxUnits
	}
	m.until, m.refused = rounded(g.Until), false
	m.low = [...]int64{-1, 0, 0, 1, 2, 3, 5, 7, 11, 15, 23, 31, 47, 63, 95, 127, 191, 255, 383, 511, 767, 1023, 1535, 2047, 3071, 4095, 6143, 8191, 12287, 16383, 24575}[g.Mark]
	return lost
}

// steps applies a row of actions, read from numbers, to a word and its model.
func steps(t *testing.T, next func() (uint64, bool)) {
	var m model
	state, now := uint64(0), policy.Instant(1)
	for {
		what, ok := next()
		if !ok {
			return
		}
		x, _ := next()
		switch what % 8 {
		case 0:
			now += policy.Instant(x % uint64(4*aStep))
		case 1:
			now = max(m.until+policy.Instant(x%3)-1, 0)
		case 2:
			g := Grant{Until: now + policy.Instant(x%uint64(40*aStep)), Units: int64(x>>32) % (MaxUnits + 2), Mark: x >> 20 % refusing, Add: x>>19&1 == 0}
			if x>>18&1 == 0 {
				g.Units %= 9
			}
			after, d := g.Take(state, now, 1, 0)
			require.True(t, d.Allowed)
			require.Equal(t, m.grant(g), d.Remaining, "%+v of %v at %v", g, split(state), now)
			state = after
		case 3:
			r := Refusal{Until: now + policy.Instant(x%uint64(40*aStep))}
			if state, _ = r.Take(state, now, 1, 0); m.units == 0 || !m.live(now) {
				m = model{until: rounded(r.Until), refused: true, low: -1}
			}
		case 4:
			ended := x&1 == 0
			after, d := Seizure{Ended: ended}.Take(state, now, 1, 0)
			if !ended && !m.live(now) {
				require.Zero(t, d.Remaining)
			} else {
				require.Equal(t, m.units, d.Remaining)
				m.units = 0
			}
			state = after
		default:
			n := int64(x % 12)
			if what%8 == 7 {
				n = int64(x)
			}
			before := m
			allowed, low, retry := m.take(now, n)
			after, wrapped := Policy{}.Take(state, now, n, 0)
			want := Decision{}
			if m.live(now) {
				want = Decision{Units: m.units, Holds: time.Duration(m.until - now)}
			}
			switch {
			case n == 0 && m.refused && m.live(now):
				// Even a look is refused.
				want.Verdict = Refused
				allowed = false
			case low:
				want.Verdict = TakenLow
			case allowed:
				want.Verdict = Taken
			case retry > 0:
				want.Verdict = Refused
				require.Equal(t, policy.Decision{Limit: 7, RetryAfter: retry, ResetAfter: retry}, want.Answer(7))
			}
			d := Unwrap(wrapped)
			require.Equal(t, want, d, "Take(%d) of %v at %v", n, split(state), now)
			require.Equal(t, allowed || want.Verdict == Refused, d.Answers())
			if allowed {
				require.Equal(t, policy.Decision{Allowed: true, Limit: 7, Remaining: d.Units, ResetAfter: d.Holds}, d.Answer(7))
			}
			require.EqualValues(t, Policy{}.Limit(), wrapped.Limit)
			one, took := Policy{}.Take(state, now, 1, 0)
			next, chosen := Policy{}.Choke(state, now)
			require.Equal(t, Unwrap(took).Verdict == Taken, chosen, "%v at %v", split(state), now)
			if chosen {
				require.Equal(t, one, next)
			} else {
				require.Equal(t, state, next)
			}
			if m == before {
				require.Equal(t, state, after, "nothing was taken, but the word changed")
			}
			state = after
		}
		require.LessOrEqual(t, state, uint64(policy.MaxWord))
		require.Equal(t, m.until, Policy{}.FreshAt(state))
	}
}

func TestUnitsComeBackToTheirLease(t *testing.T) {
	const now = policy.Instant(time.Second)
	word := func(until time.Duration, units int64) uint64 {
		w, _ := Grant{Until: policy.Instant(until), Units: units, Mark: 2}.Take(0, now, 1, 0)
		return w
	}
	left := word(2*time.Second, 7)
	cancel := func(state uint64, at policy.Instant, n int64) uint64 {
		return Policy{}.Cancel(state, left, now, at, n, 0)
	}
	require.Equal(t, word(2*time.Second, 10), cancel(left, now, 3))
	require.Equal(t, word(2*time.Second, 5), cancel(word(2*time.Second, 2), now, 3), "others took since")
	require.Equal(t, word(2*time.Second, MaxUnits), cancel(word(2*time.Second, MaxUnits-1), now, 3))
	for _, state := range []uint64{word(3*time.Second, 7), word(1500*time.Millisecond, 7), 0} {
		require.Equal(t, state, cancel(state, now, 3), "another lease")
	}
	refused, _ := Refusal{Until: policy.Instant(2 * time.Second)}.Take(0, now, 1, 0)
	require.Equal(t, refused, cancel(refused, now, 3))
	require.Equal(t, left, cancel(left, policy.Instant(2*time.Second), 3), "it has ended")
	require.Equal(t, left, cancel(left, now, -3))
	require.Equal(t, left, Policy{}.Refund(left, now, 3))
}

func TestWordIsItsModel(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 0))
		left := 400
		steps(t, func() (uint64, bool) {
			left--
			return rng.Uint64(), left > 0
		})
	}
}

func FuzzWord(f *testing.F) {
	for seed := range uint64(8) {
		rng, data := rand.New(rand.NewPCG(seed, 1)), []byte(nil)
		for range 32 {
			data = binary.BigEndian.AppendUint64(data, rng.Uint64())
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		steps(t, func() (uint64, bool) {
			if len(data) < 8 {
				return 0, false
			}
			x := binary.BigEndian.Uint64(data)
			data = data[8:]
			return x, true
		})
	})
}

// No word and no clock mints units or panics.
func FuzzAnyWord(f *testing.F) {
	f.Add(uint64(0), int64(0), int64(1), int64(1))
	f.Add(uint64(policy.MaxWord), int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MinInt64))
	f.Add(uint64(1)<<40|17<<markBits|3, int64(5), int64(3), int64(-1))
	f.Fuzz(func(t *testing.T, state uint64, at, n, other int64) {
		state = min(state, policy.MaxWord)
		now := policy.Instant(at)
		have := int64(0)
		if w := split(state); w.holds(now) && w.mark != refusing {
			have = int64(w.units)
		}
		after, d := Policy{}.Take(state, now, n, 0)
		left := int64(0)
		if w := split(after); w.holds(now) && w.mark != refusing {
			left = int64(w.units)
		}
		switch {
		case n == 0 || !d.Allowed:
			require.Equal(t, state, after)
		default:
			require.Positive(t, n)
			require.Equal(t, have-n, left)
		}
		require.GreaterOrEqual(t, d.Remaining, int64(0))
		require.GreaterOrEqual(t, d.RetryAfter, time.Duration(0))
		require.GreaterOrEqual(t, d.ResetAfter, time.Duration(0))
		for _, p := range []policy.Policy{
			Grant{Until: policy.Instant(other), Units: max(n, 0), Mark: uint64(other) % refusing, Add: n&1 == 0},
			Refusal{Until: policy.Instant(other)}, Seizure{}, Seizure{Ended: true},
		} {
			next, d := p.Take(state, now, 1, 0)
			require.LessOrEqual(t, next, uint64(policy.MaxWord))
			require.True(t, d.Allowed)
			require.True(t, Policy{}.Reads(p))
			require.LessOrEqual(t, Policy{}.FreshAt(next), max(policy.Instant(other), Policy{}.FreshAt(state), 0), "it ends later than it was told to")
		}
	})
}

// An engine without room refuses by itself. That is not a refusal by the bank.
func TestRefusalOfTheEngineIsShort(t *testing.T) {
	d := Unwrap(policy.Decision{Limit: Policy{}.Limit(), RetryAfter: time.Millisecond})
	require.Equal(t, Decision{}, d)
	require.False(t, d.Answers())
}

func TestMarkIsLittleBelowTheUnits(t *testing.T) {
	for units := range int64(20_000) {
		low := word{mark: MarkFor(units)}.low()
		require.LessOrEqual(t, low, units)
		require.True(t, low >= (units-1)*2/3-1 || low == 24575, "%d is marked at %d", units, low)
	}
	require.EqualValues(t, 24575, word{mark: MarkFor(math.MaxInt64 - 1)}.low())
}

func TestPolicyReadsOnlyItsFamily(t *testing.T) {
	other := policy.Must(policy.Funnel(1, 1, time.Second))
	require.False(t, Policy{}.Reads(other))
	_, ok := Policy{}.Carry(other, 1, 1)
	require.False(t, ok)
	state, ok := Policy{}.Carry(Policy{}, 77, 1)
	require.True(t, ok)
	require.EqualValues(t, 77, state)
}
