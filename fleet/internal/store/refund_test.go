package store_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/internal/shape"
	"github.com/ral-limiter/ral/policy"
)

// What comes back, is charged or cancelled makes of a word in Redis what the policy makes
// of it, to the bit; and what means nothing any more is not kept.
func TestGivingBackAgreesWithThePolicy(t *testing.T) {
	seed := rand.Uint64()
	policies := oraclePolicies(seed)
	client := connect(t, shared)
	var group sync.WaitGroup
	for i, p := range policies {
		group.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(i)+1))
			var clock int64
			s := clocked(t, client, &clock)
			l, err := s.Limit(p)
			if !assert.NoError(t, err) {
				return
			}
			redisName, _ := s.Name(l, "k")
			refunder := p.(policy.Refunder)
			type take struct {
				store.Taken
				n int64
			}
			var takes []take // some of the last, also those that are gone
			var word uint64
			_, hint := p.Take(0, 1, 0, 0)
			for step := range oracleSteps {
				if random.IntN(6) == 0 { // any word may be there
					word = anyWord(random, p, refunder, word, clock)
					put(t, client, redisName, strconv.FormatUint(word, 10))
					_, hint = p.Take(word, policy.Instant(clock)*1000, 0, 0)
				}
				clock = nextInstant(random, p, clock, word, hint)
				now := policy.Instant(clock) * 1000
				n := anyUnits(random, hint.Limit, hint.Remaining)
				at := fmt.Sprintf("%v, seed %d of %d, step %d: word %d at %d, %d units", p, seed, i, step, word, now, n)

				if random.IntN(3) == 0 { // another call takes
					got, err := s.Take(context.Background(), l, "k", n, math.MaxInt64)
					if !assert.NoError(t, err, at) {
						return
					}
					if got.Allowed && n > 0 {
						takes = append(takes, take{got, n})
					}
					word, hint = got.After, got.Decision
					continue
				}
				var next uint64
				var got store.Taken
				if of := random.IntN(len(takes) + 2); of < len(takes) {
					c := takes[of]
					if random.IntN(8) == 0 { // it may have left any word
						c.After = anyWord(random, p, refunder, word, clock) | 1
					}
					kept := max(random.Int64N(2*c.n)-c.n, 0)
					at += fmt.Sprintf(", of %+v, %d kept", c, kept)
					sooner, d := p.Take(c.Before, c.At, kept, math.MaxInt64)
					switch {
					case c.After != word:
						next = refunder.Cancel(word, c.After, c.At, now, c.n-kept, math.MaxInt64)
					case kept == 0:
						next = c.Before
					case d.Allowed && d.Wait == c.Wait:
						next = sooner
					default:
						next = refunder.Cancel(word, c.After, c.At, now, c.n-kept, 0)
					}
					got, err = s.Keep(context.Background(), l, "k", c.Taken, c.n, kept)
					takes = append(takes[:of], takes[of+1:]...)
				} else {
					if random.IntN(2) == 0 && n > math.MinInt64 {
						n = -n
					}
					next = refunder.Refund(word, now, n)
					got, err = s.Refund(context.Background(), l, "k", n)
				}
				if !assert.NoError(t, err, at) || !assert.Equal(t, word, got.Before, at) ||
					!assert.Equal(t, next, got.After, at) || !assert.Equal(t, now, got.At, at) {
					return
				}
				if _, want := p.Take(next, now, 0, 0); !assert.Equal(t, want, got.Decision, at) {
					return
				}
				there := integer(t, client, "EXISTS", redisName) == 1
				switch {
				case there:
					if next != word && !assert.Equal(t, strconv.FormatUint(next, 10), get(t, client, redisName), at) {
						return
					}
					word = next
				case !assert.LessOrEqual(t, p.FreshAt(next), max(now, 0), at):
					return
				default:
					word = 0
				}
				hint = got.Decision
			}
		})
	}
	group.Wait()
}

// A word that means nothing any more is not kept, however it came about.
func TestWhatIsGivenBackIsForgotten(t *testing.T) {
	client := connect(t, shared)
	ctx := context.Background()
	for _, p := range wordPolicies() {
		t.Run(p.String(), func(t *testing.T) {
			var clock int64 = 5_000_000
			s := clocked(t, client, &clock)
			l := limit(t, s, p)
			for what, giveBack := range map[string]func(store.Taken) (store.Taken, error){
				"refund":         func(store.Taken) (store.Taken, error) { return s.Refund(ctx, l, "k", 3) },
				"more than used": func(store.Taken) (store.Taken, error) { return s.Refund(ctx, l, "k", math.MaxInt64) },
				"cancel":         func(taken store.Taken) (store.Taken, error) { return s.Cancel(ctx, l, "k", taken, 3) },
				"less than none": func(taken store.Taken) (store.Taken, error) { return s.Keep(ctx, l, "k", taken, 3, -1) },
			} {
				taken, err := s.Take(ctx, l, "k", 3, math.MaxInt64)
				require.NoError(t, err)
				require.True(t, taken.Allowed)
				require.EqualValues(t, 1, integer(t, client, "EXISTS", name(t, s, l, "k")))
				d, err := giveBack(taken)
				require.NoError(t, err, what)
				assert.Equal(t, d.Limit > 0, d.Remaining > 0, what)
				assert.Zero(t, integer(t, client, "EXISTS", name(t, s, l, "k")), what)
			}
			// One that another call lengthened meanwhile is.
			taken, err := s.Take(ctx, l, "k", 1, math.MaxInt64)
			require.NoError(t, err)
			_, err = s.Take(ctx, l, "k", 1, math.MaxInt64)
			require.NoError(t, err)
			_, err = s.Cancel(ctx, l, "k", taken, 1)
			require.NoError(t, err)
			assert.EqualValues(t, 1, integer(t, client, "EXISTS", name(t, s, l, "k")))
		})
	}
}

// Where time stands still, what counts no more then is not given back.
func TestCancelWhenTimeStandsStill(t *testing.T) {
	client := connect(t, shared)
	clock := int64(1) << 60
	s := clocked(t, client, &clock)
	p := policy.Must(policy.SlidingWindow(10, time.Second))
	l, of := limit(t, s, p), p.(shape.Shaped).Shape()
	for back := range uint64(3) { // windows before the last
		word := (of.Last-back)<<(2*of.Bits) | 5
		put(t, client, name(t, s, l, "k"), strconv.FormatUint(word, 10))
		took := store.Taken{Before: word - 1, After: word - 1}
		got, err := s.Cancel(context.Background(), l, "k", took, 2)
		require.NoError(t, err)
		assert.Equal(t, p.(policy.Refunder).Cancel(word, took.After, 0, math.MaxInt64, 2, math.MaxInt64), got.After)
		assert.Equal(t, back == 0, got.After != word, "only the last still counts")
	}
}

// Calls that change one word at once all get through, each in one call of Redis,
// however many others take from it.
func TestChangesLoseNothing(t *testing.T) {
	s := store.New(connect(t, shared), store.Options{Name: own(t)})
	ctx := context.Background()
	for _, p := range []policy.Policy{
		policy.Must(policy.Funnel(1000, 1, 24*time.Hour)), policy.Must(policy.Queue(999, 1, 24*time.Hour)),
		policy.Must(policy.FixedWindow(1000, 24*time.Hour)), policy.Must(policy.SlidingWindow(1000, 24*time.Hour)), newLog(t, 1000, 24*time.Hour),
	} {
		l := limit(t, s, p)
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() {
				for range 10 {
					_, err := s.Refund(ctx, l, "k", -3)
					assert.NoError(t, err)
					_, err = s.Take(ctx, l, "k", 1, math.MaxInt64)
					assert.NoError(t, err)
					_, err = s.Refund(ctx, l, "k", 2)
					assert.NoError(t, err)
				}
			})
		}
		group.Wait()
		d, err := s.Peek(ctx, l, "k")
		require.NoError(t, err)
		assert.EqualValues(t, 1000-8*10*2, d.Remaining, "%v", p)
	}
}
