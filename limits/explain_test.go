package limits_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/shape"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/single"
)

// What an explanation says of any word is what the policy does:
//
//  1. After each time in Returns, so many remain as it says, and a nanosecond before fewer.
//  2. The first is when the next unit comes back, and the last leaves nothing used.
//  3. There are 16 at the most, in order.
func TestReturnsAreExact(t *testing.T) {
	for _, limit := range []policy.Policy{
		policy.Must(policy.Funnel(100, 10, time.Second)), policy.Must(policy.Funnel(3, 7, time.Hour)),
		policy.Must(policy.Funnel(1_000_000, 1000, time.Second)),
		policy.Must(policy.Queue(10, 3, time.Second)), policy.Must(policy.Queue(0, 1, time.Second)),
		policy.Must(policy.Bursty(5, time.Second, 10)), policy.Must(policy.WarmingUp(5, time.Second, time.Minute, 3)),
		policy.Must(policy.FixedWindow(100, time.Minute)), policy.Must(policy.SlidingWindow(100, time.Minute)),
		policy.Must(policy.AtMost(100, time.Minute)),
	} {
		t.Run(limit.String(), func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			of := shape.AtOnce(limit)
			for range 30 {
				var word uint64
				now := policy.Instant(1 + r.Int64N(int64(10*time.Minute)))
				for range r.IntN(8) {
					word, _ = limit.Take(word, now, 1+r.Int64N(min(limit.Limit(), 2*of)), 0)
					now += policy.Instant(r.Int64N(int64(20 * time.Second)))
				}
				remaining := func(after time.Duration) int64 {
					_, d := limit.Take(word, now+policy.Instant(after), 0, 0)
					return d.Remaining
				}
				x := limits.ExplainWord(limit, word, now, 1)
				_, call := limit.Take(word, now, 1, 0)
				assert.Equal(t, []any{call.Allowed, call.RetryAfter, call.Wait}, []any{x.Allowed, x.RetryAfter, x.Wait})
				assert.Equal(t, []int64{of, of - remaining(0), remaining(0)}, []int64{x.Of, x.Used, x.Remaining})
				require.LessOrEqual(t, len(x.Returns), 16)
				before := limits.Return{Remaining: remaining(0)}
				for i, back := range x.Returns {
					require.Greater(t, back.After, before.After)
					require.Greater(t, back.Remaining, before.Remaining)
					require.Equal(t, back.Remaining, remaining(back.After))
					require.Less(t, remaining(back.After-1), back.Remaining)
					if i == 0 {
						require.Equal(t, before.Remaining, remaining(back.After-1), "it is the next one")
					}
					before = back
				}
				require.Equal(t, of, before.Remaining, "and all come back")
			}
		})
	}
}

// At the end of time nothing comes back, and nothing overflows.
func TestReturnsAtTheEndOfTime(t *testing.T) {
	limit := policy.Must(policy.Funnel(10, 1, time.Second))
	const end = policy.Instant(1<<63 - 1)
	word, _ := limit.Take(0, end, 10, 0)
	x := limits.ExplainWord(limit, word, end, 1)
	assert.False(t, x.Allowed)
	assert.Empty(t, x.Returns)
}

func TestExplanationInWords(t *testing.T) {
	limit := policy.Must(policy.Funnel(100, 10, time.Second))
	word, _ := limit.Take(0, 1, 100, 0)
	full := limits.ExplainWord(limit, word, 1, 1)
	full.Name, full.Waiting, full.Blocked = "api", 2, 90*time.Second
	one, _ := limit.Take(0, 1, 1, 0)
	queue := policy.Must(policy.Queue(5, 1, time.Second))
	queued, _ := queue.Take(0, 1, 1, 0)
	for want, x := range map[string]limits.Explanation{
		"api: At most 100 at once, and 10 every s after that. 100 of 100 used. A call is refused for 100ms. " +
			"The key is blocked for 1m30s. In 100ms there are 1 left, and in 10s 100. 2 calls wait.": full,
		"At most 100 at once, and 10 every s after that. 1 of 100 used. A call is admitted. In 100ms there are 100 left.": limits.ExplainWord(limit, one, 1, 1),
		"1 every s, evenly spaced, with room for 5 to wait. 1 of 6 used. A call is admitted, to start in 1s. In 1s there are 6 left.": limits.ExplainWord(
			queue, queued, 1, 1),
		"At most 100 at once, and 10 every s after that. 0 of 100 used. Every call is refused.": limits.ExplainWord(limit, 0, 1, 101),
		"No limit. A call is admitted.": {Decision: policy.Decision{Allowed: true}, Binding: -1},
		"2 limits. A call is refused for 100ms. Limit 1 decides.\n" +
			"1. At most 100 at once, and 10 every s after that. 100 of 100 used. A call is refused for 100ms. In 100ms there are 1 left, and in 10s 100.\n" +
			"2. At most 100 at once, and 10 every s after that. 0 of 100 used. A call is admitted.": limits.Together(
			limits.ExplainWord(limit, word, 1, 1), limits.ExplainWord(limit, 0, 1, 1)),
	} {
		assert.Equal(t, want, x.String())
	}
}

// remote is a limiter that cannot explain.
type remote struct {
	limits.Limiter[string]
	err error
}

func (r remote) Ask(ctx context.Context, key string, n int64) (limits.Answer, error) {
	if r.err != nil {
		return limits.Answer{}, r.err
	}
	return r.Limiter.Ask(ctx, key, n)
}

func TestExplainAnyLimiter(t *testing.T) {
	ctx := context.Background()
	limit := policy.Must(policy.FixedWindow(10, time.Hour))
	e, err := engine.New[string](engine.Config{Policy: limit})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, e.Close()) })
	e.Take("a", 4)
	x, err := limits.Explain(ctx, e, "a")
	require.NoError(t, err)
	assert.Equal(t, []any{true, int64(4), int64(10), 1}, []any{x.Known, x.Used, x.Of, len(x.Returns)})

	looked, err := limits.Explain(ctx, remote{Limiter: e}, "a")
	require.NoError(t, err)
	assert.Equal(t, []any{true, int64(4), int64(10), limit}, []any{looked.Known, looked.Used, looked.Of, looked.Limit})
	assert.Equal(t, limits.SourceProcess, looked.Source())
	assert.Empty(t, looked.Returns)
	lost := errors.New("lost")
	_, err = limits.Explain(ctx, remote{e, lost}, "a")
	assert.ErrorIs(t, err, lost)

	one, err := single.New(limit)
	require.NoError(t, err)
	one.Take(3)
	for _, l := range []limits.Limiter[string]{limits.Keyless[string](one)} {
		x, err := limits.Explain(ctx, l, "any")
		require.NoError(t, err)
		assert.EqualValues(t, 3, x.Used)
		assert.Len(t, x.Returns, 1)
	}

	candidate, err := engine.New[string](engine.Config{Policy: policy.Must(policy.FixedWindow(3, time.Hour))})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, candidate.Close()) })
	candidate.Take("a", 3)
	trial, err := limits.NewTrial(limits.TrialConfig[string]{Live: e, Candidate: candidate})
	require.NoError(t, err)
	x, err = limits.Explain(ctx, trial, "a")
	require.NoError(t, err)
	require.NotNil(t, x.Candidate)
	assert.True(t, x.Allowed)
	assert.False(t, x.Candidate.Allowed, "it would refuse")
	assert.True(t, strings.Contains(x.String(), "\nCandidate: "), x.String())
	assert.Zero(t, trial.Stats(), "looking counts nothing")
}

func ExampleExplain() {
	e, err := engine.New[string](engine.Config{Name: "api", Policy: policy.Must(policy.FixedWindow(3, time.Hour))})
	if err != nil {
		panic(err)
	}
	defer e.Close()
	x, err := limits.Explain(context.Background(), e, "never used")
	fmt.Println(x, err)
	// Output: api: At most 3 in each window of 1h, which begins with the first call. 0 of 3 used. A call is admitted. <nil>
}
