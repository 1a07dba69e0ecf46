package families

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/policy"
)

// Used units move to a key under a limit of any kind, also if they are more than that admits.
func TestChangeMovesUsedUnits(t *testing.T) {
	s, ctx := open(t, Config{}), t.Context()
	claim := func(text, key string) Claim { return claim(t, s, text, key, 0) }
	left := func(c Claim) int64 {
		d, err := c.Family.TakeWith(ctx, c.Limit, c.Key, 0)
		require.NoError(t, err)
		return d.Remaining
	}
	texts := []string{
		"funnel 10, 10/720h", "queue 10, 10/720h", "window 10/720h", "sliding 10/720h", "at most 10/720h", "window 10/720h aligned",
	}
	for _, text := range texts {
		// 25 units are also charged beyond the limit.
		for _, used := range []int64{0, 1, 7, 10, 25} {
			from, to := claim(text, "small"), claim("window 1000/h", "large "+text)
			before := left(to)
			// A call charges no more than pass in 31 days.
			for rest := used; rest > 0; rest -= 9 {
				_, err := from.Family.RefundWith(ctx, from.Limit, from.Key, -min(rest, 9))
				require.NoError(t, err)
			}
			require.NoError(t, Change(ctx, from, to), text)
			assert.Equal(t, before-used, left(to), "%s, %d used", text, used)
			d, err := from.Family.TakeWith(ctx, from.Limit, from.Key, 0)
			require.NoError(t, err)
			assert.Equal(t, d.Limit, d.Remaining, "%s, %d used", text, used)
			// A fixed window stays where it opened.
			if text != "window 10/720h" {
				assert.Zero(t, d.ResetAfter, "%s, %d used", text, used)
			}
		}
	}
	// Of one key and family the word is translated, once.
	small, large := claim("window 10/h", "key"), claim("window 1000/h", "key")
	_, err := small.Family.RefundWith(ctx, small.Limit, small.Key, -10)
	require.NoError(t, err)
	require.NoError(t, Change(ctx, small, large))
	assert.EqualValues(t, 990, left(large))
	require.ErrorContains(t, Change(ctx, claim("bursty 1/s, 9", "key"), large), "on credit")
	require.NoError(t, small.Family.Block(ctx, small.Key, 1<<40))
	require.ErrorContains(t, Change(ctx, small, claim("funnel 1, 1/s", "key")), "blocked")
}

// Units are charged in parts, also if a single charge may not have so many.
func TestChangeLeavesADebtUnderASmallerLimit(t *testing.T) {
	s, ctx := open(t, Config{}), t.Context()
	for _, text := range []string{"funnel 10, 10/720h", "window 10/720h", "at most 5/300d", "queue 3, 1/100d"} {
		from, to := claim(t, s, "window 60/300d", "from "+text, 0), claim(t, s, text, "to", 0)
		_, err := from.Family.TakeWith(ctx, from.Limit, from.Key, 35)
		require.NoError(t, err)
		require.NoError(t, Change(ctx, from, to), text)
		back, err := giveBack(ctx, to)
		require.NoError(t, err)
		assert.GreaterOrEqual(t, back, int64(35), text)
		d, err := from.Family.TakeWith(ctx, from.Limit, from.Key, 0)
		require.NoError(t, err)
		assert.EqualValues(t, 60, d.Remaining, text)
	}
	// More than maxMoved charges would be needed, so all units stay.
	from, to := claim(t, s, "window 1000000/300d", "many", 0), claim(t, s, "funnel 2, 1/300d", "few", 0)
	_, err := from.Family.TakeWith(ctx, from.Limit, from.Key, 1_000_000)
	require.NoError(t, err)
	require.ErrorContains(t, Change(ctx, from, to), "1001 used units could not be recorded under funnel 2, 1/300d")
	for claim, want := range map[Claim]int64{from: 0, to: 2} {
		d, err := claim.Family.TakeWith(ctx, claim.Limit, claim.Key, 0)
		require.NoError(t, err)
		assert.Equal(t, want, d.Remaining, "%v", claim.Limit)
	}
}

type failing struct {
	Family
	err error
}

func (f failing) RefundWith(context.Context, policy.Policy, string, int64) (policy.Decision, error) {
	return policy.Decision{}, f.err
}

func TestUnitsThatCannotMoveStay(t *testing.T) {
	s, limit := open(t, Config{}), policy.Must(policy.FixedWindow(10, time.Hour))
	family, err := s.Of(limit)
	require.NoError(t, err)
	from := Claim{Family: family, Limit: limit, Key: "small"}
	_, err = family.TakeWith(t.Context(), limit, "small", 4)
	require.NoError(t, err)
	away := errors.New("Redis is away")
	require.ErrorIs(t, Change(t.Context(), from, Claim{Family: failing{family, away}, Limit: limit, Key: "large"}), away)
	require.ErrorIs(t, Change(t.Context(), Claim{Family: failing{family, away}, Limit: limit, Key: "small"}, from), away)
	d, err := family.TakeWith(t.Context(), limit, "small", 0)
	require.NoError(t, err)
	assert.EqualValues(t, 6, d.Remaining)
	require.ErrorContains(t, Change(t.Context(), from, Claim{Family: &remote{leased: true}, Limit: limit, Key: "large"}), "leased")
}
