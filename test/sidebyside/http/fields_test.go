package sidebyside

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/httplimit"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/policy"
)

type says struct {
	decision policy.Decision
	window   time.Duration
}

func (s *says) Take(word uint64, _ policy.Instant, _ int64, _ time.Duration) (uint64, policy.Decision) {
	return word, s.decision
}
func (s *says) Limit() int64                  { return s.decision.Limit }
func (s *says) Delays() bool                  { return false }
func (s *says) FreshAt(uint64) policy.Instant { return 0 }
func (s *says) String() string                { return "a fixed decision" }
func (s *says) Window() time.Duration         { return s.window }

// An independent parser reads the fields correctly, for any names and numbers.
func FuzzFieldsAreStructured(f *testing.F) {
	f.Add("default", "other", true, int64(100), int64(97), int64(time.Second), int64(0), int64(10*time.Second))
	f.Add(`a "quoted\" name`, `\`, false, int64(1), int64(0), int64(time.Hour), int64(time.Hour), int64(1))
	f.Add(" ", "~", false, int64(1<<62), int64(1<<61), int64(1<<62), int64(policy.Never), int64(1<<62))
	f.Add("0", "0", true, int64(122), int64(92), int64(1000000041), int64(0), int64(10*time.Second))
	f.Fuzz(func(t *testing.T, name, second string, allowed bool, limit, remaining, reset, retry, window int64) {
		if limit < 0 || remaining < 0 || remaining > limit || reset < 0 || retry <= 0 && !allowed || window < 0 {
			t.Skip("no policy says so")
		}
		if allowed {
			retry = 0
		}
		p := &says{policy.Decision{
			Allowed: allowed, Limit: limit, Remaining: remaining,
			ResetAfter: time.Duration(reset), RetryAfter: time.Duration(retry),
		}, time.Duration(window)}
		limiter := must.Get(engine.New[string](engine.Config{Policy: p}))
		defer limiter.Close()
		key := func(*http.Request) string { return "key" }

		for _, names := range [][]string{{name}, {name, second}} {
			var limits []httplimit.AnyLimit
			for _, n := range names {
				limits = append(limits, httplimit.Limit[string]{Name: n, Limiter: limiter, Key: key})
			}
			m, err := httplimit.NewAll(httplimit.Options{}, limits...)
			if err != nil {
				t.Skip("no such names")
			}
			h := put(m)
			if !allowed && time.Duration(retry) == policy.Never {
				// No invitation to retry, and no quota that the request cannot use.
				for _, field := range []string{"Retry-After", "Ratelimit", "Ratelimit-Policy"} {
					assert.NotContains(t, h, field)
				}
				continue
			}
			policies, err := httpsfv.UnmarshalList(h["Ratelimit-Policy"])
			require.NoError(t, err, "%q", h["Ratelimit-Policy"])
			require.Len(t, policies, len(names))
			for i, n := range names {
				item, ok := policies[i].(httpsfv.Item)
				require.True(t, ok)
				assert.Equal(t, called(n), item.Value)
				assert.Equal(t, clamped(limit), parameter(t, item, "q"))
				if window >= int64(time.Second) {
					assert.Equal(t, up(window), parameter(t, item, "w"))
				} else {
					assert.Equal(t, []string{"q"}, item.Params.Names())
				}
			}
			list, err := httpsfv.UnmarshalList(h["Ratelimit"])
			require.NoError(t, err, "%q", h["Ratelimit"])
			require.Len(t, list, 1)
			item, ok := list[0].(httpsfv.Item)
			require.True(t, ok)
			assert.Contains(t, []any{called(name), called(second)}, item.Value)
			assert.Equal(t, clamped(remaining), parameter(t, item, "r"))
			after, has := h["Retry-After"]
			switch {
			case allowed:
				assert.False(t, has)
				// Up to 100 µs above a second are the limit's own rounding.
				assert.Equal(t, up(max(reset-100_000, min(reset, 1))), parameter(t, item, "t"))
			default:
				n := must.Get(strconv.ParseInt(after[0], 10, 64))
				assert.Equal(t, up(retry), n)
				assert.Equal(t, n, parameter(t, item, "t"), "Retry-After must not be earlier than the reset")
			}
		}
	})
}

func put(m *httplimit.Middleware) http.Header {
	w := httptest.NewRecorder()
	m.Handler(http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	return w.Header()
}

func called(name string) any {
	if name == "" {
		return "default"
	}
	return name
}

func parameter(t *testing.T, item httpsfv.Item, name string) int64 {
	t.Helper()
	v, ok := item.Params.Get(name)
	require.True(t, ok, "no %s", name)
	n, ok := v.(int64)
	require.True(t, ok, "%s is %T", name, v)
	return n
}

func clamped(n int64) int64 { return min(n, 999_999_999_999_999) }

// up converts nanoseconds to whole seconds, rounded up.
func up(n int64) int64 {
	s := n / 1e9
	if n%1e9 > 0 {
		s++
	}
	return s
}
