package outgoing

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/outgoing/internal/answer"
	"github.com/ral-limiter/ral/policy"
)

// models is a server of language models with limits of calls and of tokens. A request says in its
// path how many tokens it takes.
type models struct {
	// limits are of calls and of tokens.
	limits [2]policy.Policy
	fields func(h http.Header, left [2]policy.Decision)

	began   time.Time
	mu      sync.Mutex
	words   [2]uint64
	served  [2]int64
	refused int
}

func (m *models) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	tokens, _ := strconv.ParseInt(r.URL.Path[1:], 10, 64)
	m.mu.Lock()
	defer m.mu.Unlock()
	now := policy.Instant(time.Now().Sub(m.began)) + 1
	cost, status := [2]int64{1, tokens}, http.StatusOK
	next, left := m.words, [2]policy.Decision{}
	for i, p := range m.limits {
		if next[i], left[i] = p.Take(m.words[i], now, cost[i], 0); !left[i].Allowed {
			status = http.StatusTooManyRequests
		}
	}
	if status == http.StatusOK {
		m.words = next
		m.served[0], m.served[1] = m.served[0]+1, m.served[1]+tokens
	} else {
		m.refused++
	}
	for i, p := range m.limits {
		_, left[i] = p.Take(m.words[i], now, 0, 0)
	}
	m.fields(w.Header(), left)
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"text":"\"total_tokens\":1","usage": {"total_tokens" : %d}}`, tokens)
}

func likeOpenAI(h http.Header, left [2]policy.Decision) {
	for i, name := range []string{"Requests", "Tokens"} {
		h.Set("X-Ratelimit-Remaining-"+name, strconv.FormatInt(left[i].Remaining, 10))
		h.Set("X-Ratelimit-Reset-"+name, left[i].ResetAfter.String())
	}
}

func likeTheDraft(h http.Header, left [2]policy.Decision) {
	up := func(d time.Duration) time.Duration {
		return (d.Round(time.Millisecond) + time.Second - 1) / time.Second
	}
	h.Set("Ratelimit-Policy", fmt.Sprintf(`"c";q=%d;w=60, "t";q=%d;w=60;qu="tokens"`, left[0].Limit, left[1].Limit))
	h.Set("Ratelimit", fmt.Sprintf(`"c";r=%d;t=%d, "t";r=%d;t=%d`, left[0].Remaining, up(left[0].ResetAfter), left[1].Remaining, up(left[1].ResetAfter)))
}

// Promise: Calls stay within limits of calls and of tokens, and use the scarcer.
func TestCallsKeepToLimitsOfCallsAndTokens(t *testing.T) {
	const minutes = 20
	for name, fields := range map[string]func(http.Header, [2]policy.Decision){"OpenAI": likeOpenAI, "draft": likeTheDraft} {
		for _, window := range []bool{false, true} {
			for _, calls := range []int64{20, 600} {
				for _, exact := range []bool{true, false} {
					synctest.Test(t, func(t *testing.T) {
						limit := func(n int64) policy.Policy {
							if window {
								return policy.Must(policy.FixedWindow(n, time.Minute))
							}
							return policy.Must(policy.Funnel(n, n, time.Minute))
						}
						to := &models{limits: [2]policy.Policy{limit(calls), limit(60_000)}, fields: fields, began: time.Now()}
						line := newLine(t, Config{Units: []string{"tokens"}})
						estimate := func(r *http.Request) []int64 {
							n, _ := strconv.ParseInt(r.URL.Path[1:], 10, 64)
							if !exact {
								n = n/2 + rand.Int64N(n)
							}
							return []int64{1, n}
						}
						rt := must.Get(NewTransport(line, ByHost, Options{Base: &away{handler: to, rtt: time.Second}, Cost: estimate, Used: [][]string{nil, {"total_tokens"}}}))
						ctx, cancel := context.WithCancel(t.Context())
						defer time.AfterFunc(minutes*time.Minute, cancel).Stop()
						var all sync.WaitGroup
						for range 30 {
							all.Go(func() {
								for ctx.Err() == nil {
									r, _ := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://there/%d", 100+rand.Int64N(2000)), nil)
									resp, err := rt.RoundTrip(r)
									if err != nil {
										assert.Error(t, ctx.Err(), err)
										return
									}
									_, _ = io.Copy(io.Discard, resp.Body)
									_ = resp.Body.Close()
								}
							})
						}
						all.Wait()
						used := max(float64(to.served[0])/float64(calls*minutes), float64(to.served[1])/float64(60_000*minutes))
						refused := float64(to.refused) / float64(to.served[0])
						t.Logf("%s, window %v, %d calls, exact %v: used %.0f%%, refused %.1f%%", name, window, calls, exact, used*100, refused*100)
						assert.GreaterOrEqual(t, used, map[bool]float64{true: 0.8, false: 0.7}[exact])
						assert.LessOrEqual(t, refused, 0.03)
					})
				}
			}
		}
	}
}

// A bucket without q and w, whose first answer tells a reset in a second, answers later than that.
func TestSlowAnswersLeaveTheLimitUsed(t *testing.T) {
	const limit, minutes = 60, 20
	synctest.Test(t, func(t *testing.T) {
		bucket := policy.Must(policy.Funnel(limit, limit, time.Minute))
		to := &models{limits: [2]policy.Policy{bucket, bucket}, fields: likeOpenAI, began: time.Now()}
		rt := must.Get(NewTransport(newLine(t, Config{}), ByHost, Options{Base: &away{handler: to, rtt: time.Second, slow: 2 * time.Second}}))
		crowd(t, minutes*time.Minute, rt)
		assert.GreaterOrEqual(t, to.served[0], int64(limit*minutes*95/100))
		assert.LessOrEqual(t, to.refused, limit*minutes*2/100)
	})
}

// Promise: A body's numbers settle a call, in pieces of any length.
func TestNumbersOfABody(t *testing.T) {
	for content, want := range map[string]int64{
		`{"usage":{"in":3,"out":4}}`: 7,
		// The last number of a name counts.
		"data: {\"in\": 3,\"out\":1}\n\ndata: {\"out\" :\t9 }\n\n": 12,
		`{"text":"\"in\":5","in\\":8,"in":2,"inn":6,"xin":7}`:      2,
		": a comment with a \"\ndata: {\"in\":1.9}\n":              1,
		`{"text":"5\" of \\","in":4}`:                              4,
		"{\"in\"\n:\n12}":                                          12,
		`{"in":99999999999999999999}`:                              answer.MaxCount,
		`{"in":0,"out":-1}`:                                        0,
		`{"in":null,"out":"7","in2":8}`:                            -1,
		`{"` + strings.Repeat("a", 100) + `in":5}`:                 -1,
		`["in",5]`: -1, `{"in":5`: -1, ``: -1,
	} {
		for piece := 1; piece <= len(content)+1; piece++ {
			u := newUsage(io.NopCloser(iotest.DataErrReader(strings.NewReader(content))), [][]string{nil, {"in", "out"}}, Turn[string]{})
			var read strings.Builder
			_, err := io.CopyBuffer(&read, struct{ io.Reader }{u}, make([]byte, piece))
			require.NoError(t, err)
			assert.Equal(t, content, read.String())
			got := int64(-1)
			for _, n := range u.scan.numbers {
				if n.value >= 0 {
					got = max(got, 0) + n.value
				}
			}
			assert.Equal(t, want, got, "%s by %d bytes", content, piece)
		}
	}
}

// Promise: A call's true cost is charged; the rest comes back if the server tells nothing.
func TestSettleChargesTheTrueCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, Config{Policy: policy.Must(policy.Funnel(100, 100, time.Hour))})
		left := func() int64 { return l.Engine().Peek("key", 0).Remaining }
		turn, err := l.Wait(t.Context(), "key", 60)
		require.NoError(t, err)
		assert.Equal(t, int64(40), left())
		turn.Settle(10)
		assert.Equal(t, int64(90), left())
		turn.Obey(Answer{})
		turn.Settle(-1)
		turn.Settle()
		// There is no second limit.
		turn.Settle(70, 5)
		assert.Equal(t, int64(30), left())
		turn.Abandon()
		turn.Settle(1)
		assert.Equal(t, int64(30), left())
	})
	// The server tells the limit of units.
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, Config{Units: []string{"tokens"}})
		answer := Answer{Limit: 10, Window: time.Minute, HasRemaining: true, Remaining: 9, Reset: time.Minute, Units: []Answer{
			{Limit: 1000, Window: time.Minute, HasRemaining: true, Remaining: 900, Reset: time.Minute},
		}}
		left := func() string {
			return fmt.Sprint(l.Engine().Peek("key", 0).Remaining, l.units[0].engine.Peek("key", 0).Remaining)
		}
		turn, err := l.Wait(t.Context(), "key", 1, 500)
		require.NoError(t, err)
		turn.Obey(answer)
		assert.Equal(t, "9 900", left())
		turn.Settle(1, 100)
		assert.Equal(t, "9 900", left())
		turn.Settle(1, 550)
		assert.Equal(t, "9 850", left())
		turn, err = l.Wait(t.Context(), "key", 2, 300)
		require.NoError(t, err)
		assert.Equal(t, "7 550", left())
		turn.Cancel()
		assert.Equal(t, "9 850", left())
	})
}

// Promise: `Cancel` gives back what a call took, as settled and as owed.
func TestCancelGivesBackTheCost(t *testing.T) {
	for name, c := range map[string]struct {
		others, cost, settled, left int64
	}{
		"owed": {0, 150, 150, 100}, "settled lower": {30, 60, 10, 70}, "settled higher": {80, 10, 60, 20}, "as taken": {30, 60, 60, 70},
	} {
		for _, answered := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				config := Config{Policy: policy.Must(policy.Funnel(100, 1, time.Hour)), Debts: true}
				if answered {
					config.Policy = nil
				}
				l := newLine(t, config)
				if answered {
					turn, err := l.Wait(t.Context(), "key")
					require.NoError(t, err)
					turn.Obey(Answer{Limit: 100, Window: 100 * time.Hour, HasRemaining: true, Remaining: 100, Reset: 100 * time.Hour})
				}
				left := func() int64 { return l.Engine().Peek("key", 0).Remaining }
				require.Equal(t, int64(100), left())
				turn, err := l.Wait(t.Context(), "key", c.cost)
				require.NoError(t, err)
				if c.others > 0 {
					_, err = l.Wait(t.Context(), "key", c.others)
					require.NoError(t, err)
				}
				turn.Settle(c.settled)
				old := turn
				turn.Cancel()
				turn.Cancel()
				assert.Equal(t, c.left, left(), "%s, told %v: another number of units is left than the answer says", name, answered)
				l.Reset("key")
				whole := left()
				old.Settle(1000)
				assert.Equal(t, whole, left(), "a forgotten key must have its whole limit")
			})
		}
	}
}

// A call that ends while it waits for one of its limits gives back its units of the others. The time
// at the gate counts.
func TestEndOfACallForUnits(t *testing.T) {
	for _, pace := range []Pace{Spend, Even} {
		synctest.Test(t, func(t *testing.T) {
			var reset time.Duration
			late := 0
			l := newLine(t, Config{Units: []string{"in", "out"}, Pace: pace, OnTurn: func(_ context.Context, limit string, d policy.Decision) {
				if !d.Allowed {
					late++
				} else if limit == "outgoing" {
					reset += d.Wait
				}
			}})
			unitsLeft := func(calls, in, out int64) Answer {
				answerOf := func(limit, left int64) Answer {
					return Answer{Limit: limit, Window: time.Minute, HasRemaining: true, Remaining: left, Reset: time.Minute - time.Since(l.keys.began)%time.Minute}
				}
				a := answerOf(60, calls)
				a.Units = []Answer{answerOf(1000, in), answerOf(100, out)}
				return a
			}
			turn, err := l.Wait(t.Context(), "key", 1, 1, 1)
			require.NoError(t, err)
			turn.Obey(unitsLeft(59, 999, 99))
			turn, err = l.Wait(t.Context(), "key", 1, 0, 100)
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			left := l.units[0].engine.Peek("key", 0).Remaining
			var all sync.WaitGroup
			all.Go(func() {
				_, err := l.Wait(t.Context(), "key", 1, left, 3)
				assert.NoError(t, err)
			})
			time.Sleep(time.Second)
			_, err = l.Wait(ctx, "key")
			assert.ErrorIs(t, err, context.DeadlineExceeded, "a call at the gate must end with its deadline")
			assert.Equal(t, 1, late)
			turn.Obey(unitsLeft(58, 1000, 0))
			all.Wait()
			assert.Equal(t, reset+4*time.Second, l.Stats().WaitTime)
			assert.Zero(t, l.Stats().Waiting)

			turn, err = l.Wait(t.Context(), "key", 1, 0, 100)
			require.NoError(t, err)
			left = l.units[0].engine.Peek("key", 0).Remaining
			ended, cancel := context.WithCancel(t.Context())
			all.Go(func() {
				_, err := l.Wait(ended, "key", 1, left, 100)
				assert.ErrorIs(t, err, engine.ErrCancelled)
			})
			time.Sleep(2 * time.Second)
			if pace == Spend {
				assert.Zero(t, l.units[0].engine.Peek("key", 0).Remaining)
			}
			cancel()
			all.Wait()
			assert.GreaterOrEqual(t, l.units[0].engine.Peek("key", 0).Remaining, left)
		})
	}
}

// Without Config.MaxWaiting 1,024 calls of a key wait at its gate, and one that has passed it.
func TestGateIsBoundedByDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, Config{Units: []string{"tokens"}, Probe: time.Hour})
		ctx, cancel := context.WithCancel(t.Context())
		_, err := l.Wait(ctx, "key", 1, 1)
		require.NoError(t, err)
		var all sync.WaitGroup
		for range 1 + defaultMaxWaiting {
			all.Go(func() {
				_, err := l.Wait(ctx, "key", 1, 1)
				assert.ErrorIs(t, err, engine.ErrCancelled)
			})
		}
		synctest.Wait()
		assert.Equal(t, 1+defaultMaxWaiting, l.Stats().Waiting)
		_, err = l.Wait(ctx, "key", 1, 1)
		require.ErrorIs(t, err, engine.ErrCrowded)
		cancel()
		all.Wait()
	})
}

// Promise: A call of many units is not passed for ever.
func TestUnitsKeepTheOrder(t *testing.T) {
	for _, pace := range []Pace{Spend, Even} {
		synctest.Test(t, func(t *testing.T) {
			l := newLine(t, Config{Units: []string{"tokens"}, Pace: pace})
			turn, err := l.Wait(t.Context(), "key", 1, 1)
			require.NoError(t, err)
			turn.Obey(Answer{Limit: 60, Window: time.Minute, Units: []Answer{{Limit: 6000, Window: time.Minute}}})
			ctx, cancel := context.WithCancel(t.Context())
			defer time.AfterFunc(time.Hour, cancel).Stop()
			var all sync.WaitGroup
			var turns [8]int
			for i := range turns {
				all.Go(func() {
					for {
						turn, err := l.Wait(ctx, "key", 1, []int64{10, 10, 100, 300, 5000}[i%5])
						if err != nil {
							assert.ErrorIs(t, err, context.Canceled)
							return
						}
						turns[i]++
						turn.Obey(Answer{})
					}
				})
			}
			all.Wait()
			// A round takes 5,530 tokens.
			assert.GreaterOrEqual(t, slices.Min(turns[:]), 55, "%v calls in an hour are too few", turns)
		})
	}
}

// Promise: Of a cost above what passes at once, the rest is owed.
func TestCostAboveTheBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, Config{Policy: policy.Must(policy.Funnel(10, 10, time.Second))})
		for i, wait := range []time.Duration{0, 2100, 1000, 2100} {
			turn, err := l.Wait(t.Context(), "key", []int64{30, 1}[i%2])
			require.NoError(t, err)
			assert.Equal(t, wait, turn.Waited.Round(time.Millisecond)/time.Millisecond)
		}
	})
}

// A limit known by what is left before its reset is whole after it: no cost is owed for longer. Calls
// behind a first call wait for all their units.
func TestCostAboveWhatIsLeft(t *testing.T) {
	for _, pace := range []Pace{Spend, Even} {
		for name, second := range map[string]func(*Turn[string]){
			"lost":    (*Turn[string]).Abandon,
			"refused": func(t *Turn[string]) { t.Obey(Answer{Refused: true, HasRemaining: true, Reset: time.Minute}) },
			"served":  func(t *Turn[string]) { t.Obey(Answer{HasRemaining: true, Remaining: 5000, Reset: time.Minute}) },
		} {
			synctest.Test(t, func(t *testing.T) {
				l := newLine(t, Config{Pace: pace})
				turn, err := l.Wait(t.Context(), "key", 500)
				require.NoError(t, err)
				turn.Obey(Answer{Refused: true, HasRemaining: true, Reset: time.Minute})
				turn, err = l.Wait(t.Context(), "key", 500)
				require.NoError(t, err)
				assert.Equal(t, time.Minute, turn.Waited)
				second(&turn)
				turn, err = l.Wait(t.Context(), "key", 500)
				require.NoError(t, err)
				assert.LessOrEqual(t, turn.Waited, 2*time.Minute, "%s, pace %v", name, pace)
			})
		}
		synctest.Test(t, func(t *testing.T) {
			l := newLine(t, Config{Pace: pace})
			first, err := l.Wait(t.Context(), "key", 100)
			require.NoError(t, err)
			var began atomic.Int64
			var all sync.WaitGroup
			for range 20 {
				all.Go(func() {
					_, err := l.Wait(t.Context(), "key", 100)
					assert.NoError(t, err)
					began.Add(1)
				})
			}
			synctest.Wait()
			first.Obey(Answer{Limit: 600, Window: time.Minute, HasRemaining: true, Remaining: 500, Reset: time.Minute})
			for passed := range int64(4) {
				time.Sleep(time.Second)
				assert.LessOrEqual(t, began.Load(), 5+6*passed)
				time.Sleep(time.Minute)
			}
			all.Wait()
		})
	}
}

// Promise: A refusal for tokens holds calls that take some, and leaves the pace of calls.
func TestRefusalForTokensHoldsOnlyTheirCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var names []string
		l := newLine(t, Config{Patience: time.Second, Units: []string{"tokens"}, OnTurn: func(_ context.Context, limit string, d policy.Decision) {
			names = append(names, fmt.Sprint(limit, " ", d.Allowed, " ", d.RetryAfter))
		}})
		turn, err := l.Wait(t.Context(), "key", 1, 500)
		require.NoError(t, err)
		turn.Obey(answer.Of(response(429, nil, "X-RateLimit-Remaining-Requests: 59", "X-RateLimit-Reset-Requests: 1s",
			"X-RateLimit-Remaining-Tokens: 0", "X-RateLimit-Reset-Tokens: 8.64s"), nil, l.config.Units))
		assert.Equal(t, 8640*time.Millisecond, l.BackoffLeft("key"))
		assert.Equal(t, uint64(1), l.Stats().Refusals)
		_, err = l.Wait(t.Context(), "key", 1, 500)
		var late *TurnError
		require.ErrorAs(t, err, &late)
		assert.Equal(t, "X-Ratelimit-Reset-Tokens 8.64s", fmt.Sprint(late.Field, " ", late.In))
		// The call takes no tokens.
		_, err = l.Wait(t.Context(), "key")
		require.NoError(t, err)
		assert.Equal(t, []string{"outgoing true 0s", "outgoing tokens true 0s", "outgoing tokens false 8.64s", "outgoing true 0s"}, names)
		l.Reset("key")
		assert.Zero(t, l.BackoffLeft("key"))
	})
}

// Promise: A key's calls keep to its delay, whatever the server tells.
func TestDelayHoldsWhateverTheServerTells(t *testing.T) {
	for name, c := range map[string]struct {
		a    Answer
		each time.Duration
	}{
		"nothing":  {Answer{}, 2 * time.Second},
		"more":     {Answer{Limit: 100, Window: time.Minute, HasRemaining: true, Remaining: 99, Reset: time.Second}, 2 * time.Second},
		"less":     {Answer{Limit: 10, Window: 96 * time.Second}, 10 * time.Second},
		"the rest": {Answer{HasRemaining: true, Remaining: 9, Reset: 96 * time.Second}, 10 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			l, err := New(Config{}, DelayFor(func(host string) time.Duration { return map[string]time.Duration{"slow": 2 * time.Second}[host] }))
			require.NoError(t, err)
			defer l.Close()
			for _, host := range []string{"slow", "fast", "slow", "slow", "fast"} {
				turn, err := l.Wait(t.Context(), host)
				require.NoError(t, err)
				turn.Settle(0)
				turn.Obey(c.a)
			}
			turn, err := l.Wait(t.Context(), "slow")
			require.NoError(t, err)
			assert.Equal(t, c.each, turn.Waited.Round(time.Second), name)
		})
	}
	_, err := New(Config{Policy: policy.Must(policy.Funnel(1, 1, time.Second))}, DelayFor(func(string) time.Duration { return 0 }))
	assert.ErrorContains(t, err, "Policy")
}

// Promise: Transports in a row keep limits of endpoint and host.
func TestTransportsInARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left := map[string]int{"/a": 2, "/b": 2}
		far := &base{answer: func(r *http.Request) (*http.Response, error) {
			left[r.URL.Path]--
			return response(200, nil, fmt.Sprint("X-RateLimit-Remaining: ", left[r.URL.Path]), "X-RateLimit-Reset-After: 10"), nil
		}}
		host := newLine(t, Config{Policy: policy.Must(policy.Funnel(1, 2, time.Second))})
		global := func(r *http.Response) (Answer, bool) {
			return Answer{Refused: r.Header.Get("X-RateLimit-Global") != ""}, true
		}
		byHost := must.Get(NewTransport(host, ByHost, Options{Base: far, Answer: global}))
		byPath := must.Get(NewTransport(newLine(t, Config{}), func(r *http.Request) string { return r.URL.Path }, Options{Base: byHost}))
		began := time.Now()
		for i, want := range []time.Duration{0, 500, 1000, 1500, 11000} {
			path := []string{"/a", "/b"}[i%2]
			resp, err := (&http.Client{Transport: byPath}).Get("http://there" + path)
			require.NoError(t, err)
			_ = resp.Body.Close()
			assert.Equal(t, want, time.Since(began).Round(500*time.Millisecond)/time.Millisecond, "%d", i)
		}
		// Then a request is not sent, and takes nothing of the endpoint's limit.
		require.NoError(t, host.Close())
		time.Sleep(time.Minute)
		before := byPath.line.engine.Peek("/b", 0)
		_, err := (&http.Client{Transport: byPath}).Get("http://there/b") //nolint:bodyclose // there is none
		assert.ErrorIs(t, err, engine.ErrClosed)
		assert.Equal(t, before, byPath.line.engine.Peek("/b", 0))
	})
}
