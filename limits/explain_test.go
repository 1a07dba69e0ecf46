package limits_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/single"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// For any word:
//
//  1. After each time in Returns, as many remain as it says, and a nanosecond before fewer.
//  2. The first is when the next unit comes back, and the last leaves nothing used.
//  3. There are 16 at the most, in order.
//  4. On a blocked key nothing comes back before the end of the block, which is the first if
//     anything remains then.
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
			atOnce := shape.AtOnce(limit)
			for range 30 {
				var word uint64
				now := policy.Instant(1 + r.Int64N(int64(10*time.Minute)))
				for range r.IntN(8) {
					word, _ = limit.Take(word, now, 1+r.Int64N(min(limit.Limit(), 2*atOnce)), 0)
					now += policy.Instant(r.Int64N(int64(20 * time.Second)))
				}
				remaining := func(after time.Duration) int64 {
					_, d := limit.Take(word, now+policy.Instant(after), 0, 0)
					return d.Remaining
				}
				blocked := limits.ExplainWord(limit, word, now, 1, 7*time.Second)
				assert.Equal(t, []any{false, 7 * time.Second, atOnce - remaining(0)}, []any{blocked.Allowed, blocked.Blocked, blocked.Used})
				assert.GreaterOrEqual(t, blocked.RetryAfter, 7*time.Second)
				first := limits.Return{After: 7 * time.Second, Remaining: remaining(7 * time.Second)}
				require.Equal(t, first.Remaining > 0, first == blocked.Returns[0])
				require.GreaterOrEqual(t, blocked.Returns[0].After, first.After)
				require.Equal(t, atOnce, blocked.Returns[len(blocked.Returns)-1].Remaining)
				x := limits.ExplainWord(limit, word, now, 1, 0)
				_, call := limit.Take(word, now, 1, 0)
				assert.Equal(t, []any{call.Allowed, call.RetryAfter, call.Wait}, []any{x.Allowed, x.RetryAfter, x.Wait})
				assert.Equal(t, []int64{atOnce, atOnce - remaining(0), remaining(0)}, []int64{x.Of, x.Used, x.Remaining})
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
				require.Equal(t, atOnce, before.Remaining, "and all come back")
			}
			// end is the end of time: nothing comes back, and nothing overflows.
			const end = policy.Instant(1<<63 - 1)
			word, _ := limit.Take(0, end, min(limit.Limit(), atOnce), 0)
			assert.Empty(t, limits.ExplainWord(limit, word, end, 1, 0).Returns)
		})
	}
}

func by(source limits.Source) limits.Explanation {
	return limits.Explanation{Decision: policy.Decision{Allowed: true}, Binding: -1, Waiting: 1, Provenance: limits.NewProvenance(source, false, nil)}
}

// Promise: Explanations state each limit in words.
func TestExplanationStatesLimitsInWords(t *testing.T) {
	limit := policy.Must(policy.Funnel(100, 10, time.Second))
	word, _ := limit.Take(0, 1, 100, 0)
	full := limits.ExplainWord(limit, word, 1, 1, 5*time.Second)
	full.Name, full.Waiting = "api", 2
	one, _ := limit.Take(0, 1, 1, 0)
	queue := policy.Must(policy.Queue(5, 1, time.Second))
	queued, _ := queue.Take(0, 1, 1, 0)
	for want, x := range map[string]limits.Explanation{
		"api: At most 100 at once, and 10 a second after that. 100 of 100 used. A call is refused for 5s. " +
			"The key is blocked for 5s. In 5s 50 are left, and in 10s 100. 2 calls wait.": full,
		"At most 100 at once, and 10 a second after that. 1 of 100 used. A call is admitted. In 100ms 100 are left.": limits.ExplainWord(limit, one, 1, 1, 0),
		"1 a second, evenly spaced, with room for 5 to wait. 1 of 6 used. A call is admitted, to start in 1s. In 1s 6 are left.": limits.ExplainWord(
			queue, queued, 1, 1, 0),
		"At most 100 at once, and 10 a second after that. 0 of 100 used. Every call is refused.":                                        limits.ExplainWord(limit, 0, 1, 101, 0),
		"No limit. How much is used is not known, as servers may hold units on lease. A call is admitted. 1 call waits on this server.": by(limits.SourceLease),
		"No limit. Without Redis, this server's share of the limit decides. A call is admitted. 1 call waits on this server.":           by(limits.SourceShare),
		"No limit. Without Redis, calls pass as configured. A call is admitted. 1 call waits on this server.":                           by(limits.SourceOpen),
		"No limit. Without Redis, calls are refused as configured. A call is admitted. 1 call waits on this server.":                    by(limits.SourceClosed),
		"No limit. A call is admitted. 1 call waits.":                                                                                   by(limits.SourceProcess),
		"No limit. A call is admitted.": {Decision: policy.Decision{Allowed: true}, Binding: -1},
		"2 limits. A call is refused for 100ms. Limit 1 decides.\n" +
			"1. At most 100 at once, and 10 a second after that. 100 of 100 used. A call is refused for 100ms. In 100ms 1 is left, and in 10s 100.\n" +
			"2. At most 100 at once, and 10 a second after that. 0 of 100 used. A call is admitted.": limits.Together(
			limits.ExplainWord(limit, word, 1, 1, 0), limits.ExplainWord(limit, 0, 1, 1, 0)),
	} {
		assert.Equal(t, want, x.String())
	}
}

type remote struct {
	limits.Limiter[string]
	err error
}

func (r remote) Admit(ctx context.Context, key string, n int64) (limits.Answer, error) {
	if r.err != nil {
		return limits.Answer{}, r.err
	}
	return r.Limiter.Admit(ctx, key, n)
}

func TestExplainWorksForAnyLimiter(t *testing.T) {
	ctx := t.Context()
	e := window(t, 10)
	e.Take("a", 4)
	x := must.Get(limits.Explain(ctx, e, "a"))
	assert.Equal(t, []any{true, int64(4), int64(10), 1}, []any{x.Known, x.Used, x.Of, len(x.Returns)})

	looked := must.Get(limits.Explain(ctx, remote{Limiter: e}, "a"))
	assert.Equal(t, []any{true, int64(4), int64(10), e.LimitFor("a")}, []any{looked.Known, looked.Used, looked.Of, looked.Limit})
	assert.Equal(t, limits.SourceProcess, looked.Source())
	assert.Empty(t, looked.Returns)
	lost := errors.New("lost")
	_, err := limits.Explain(ctx, remote{e, lost}, "a")
	assert.ErrorIs(t, err, lost)

	one := single.MustNew(policy.FixedWindow(10, time.Hour))
	one.Take(3)
	x = must.Get(limits.Explain(ctx, limits.ForAnyKey[string](one), "any"))
	assert.EqualValues(t, 3, x.Used)
	assert.Len(t, x.Returns, 1)
}

func TestExplainShowsTheTrialsCandidate(t *testing.T) {
	ctx, lost := t.Context(), errors.New("lost")
	e, candidate := window(t, 10), window(t, 3)
	e.Take("a", 4)
	candidate.Take("a", 3)
	tr := trial(t, limits.TrialConfig[string]{Live: e, Candidate: candidate})
	x := must.Get(limits.Explain(ctx, tr, "a"))
	require.NotNil(t, x.Candidate)
	assert.True(t, x.Allowed)
	assert.False(t, x.Candidate.Allowed, "the full candidate would admit the call")
	assert.Contains(t, x.String(), "\nCandidate: ")
	assert.Zero(t, tr.Stats(), "looking counts nothing")
	_, err := limits.Explain(ctx, trial(t, limits.TrialConfig[string]{Live: remote{e, lost}, Candidate: e}), "a")
	require.ErrorIs(t, err, lost)
	for _, bad := range []limits.Limiter[string]{remote{e, lost}, panics{e}} {
		x = must.Get(limits.Explain(ctx, trial(t, limits.TrialConfig[string]{Live: e, Candidate: bad}), "a"))
		assert.Nil(t, x.Candidate, "the candidate's error has no effect")
		assert.EqualValues(t, 4, x.Used)
	}
	// A key that is not tried has no account with the candidate. All are with odds of 1 in 2^31 at most.
	x = must.Get(limits.Explain(ctx, trial(t, limits.TrialConfig[string]{Live: explaining{e}, Candidate: e, OneIn: math.MaxInt}), "a"))
	assert.Equal(t, limits.Explanation{Name: "a"}, x)
}

type panics struct{ limits.Limiter[string] }

func (panics) Admit(context.Context, string, int64) (limits.Answer, error) { panic("it cannot") }

type explaining struct{ limits.Limiter[string] }

func (explaining) Explain(_ context.Context, key string) (limits.Explanation, error) {
	return limits.Explanation{Name: key}, nil
}

// Promise: Trials within trials explain every candidate.
func TestTrialsWithinTrialsExplainEveryCandidate(t *testing.T) {
	tried := func(live, candidate limits.Limiter[string]) *limits.Trial[string] {
		tr := trial(t, limits.TrialConfig[string]{Live: live, Candidate: candidate})
		assert.Equal(t, []any{live, candidate}, []any{tr.Live(), tr.Candidate()})
		return tr
	}
	a, b, c, d := window(t, 1), window(t, 2), window(t, 3), window(t, 4)
	for _, row := range []struct {
		trial *limits.Trial[string]
		want  []int64
	}{
		{tried(tried(a, b), tried(c, d)), []int64{1, 3, 4, 2}},
		{tried(tried(tried(a, b), c), d), []int64{1, 4, 3, 2}},
		{tried(a, tried(b, tried(c, d))), []int64{1, 2, 3, 4}},
	} {
		// Explaining changes nothing.
		for range 2 {
			x := must.Get(limits.Explain[string](t.Context(), row.trial, "k"))
			assert.Equal(t, len(row.want)-1, strings.Count(x.String(), "Candidate: "))
			var got []int64
			for at := &x; at != nil; at = at.Candidate {
				got = append(got, at.Limit.Limit())
			}
			assert.Equal(t, row.want, got)
		}
	}
}

func TestTimesAreBrief(t *testing.T) {
	for d, want := range map[time.Duration]string{
		time.Hour: "1h", time.Hour + time.Second: "1h0m1s", 100 * time.Minute: "1h40m", 20 * time.Second: "20s",
		123456 * time.Microsecond: "123.5ms", 1: "1ns", time.Hour - 1: "1h",
	} {
		x := limits.Explanation{Decision: policy.Decision{RetryAfter: d}, Binding: -1}
		assert.Equal(t, "No limit. A call is refused for "+want+".", x.String())
	}
}
