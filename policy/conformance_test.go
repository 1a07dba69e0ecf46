package policy_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/big"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ral-limiter/ral/policy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Figures of other limiters are kept here for fresh clones. A folder beside the repository that
// has them must have the same.
const (
	conformanceDir       = "testdata/conformance"
	sharedConformanceDir = "../../shared/conformance"
)

func conformance(t *testing.T, name string, into any) {
	t.Helper()
	kept, err := os.ReadFile(filepath.Join(conformanceDir, name))
	require.NoError(t, err)
	shared, err := os.ReadFile(filepath.Join(sharedConformanceDir, name))
	if !errors.Is(err, fs.ErrNotExist) {
		require.NoError(t, err)
		require.Equal(t, string(shared), string(kept), "%s is not the shared one any more", name)
	}
	require.NoError(t, json.Unmarshal(kept, into))
}

// engineStart is the first instant of an engine, at which the files' clocks are 0.
const engineStart policy.Instant = 1

// Spring Cloud Gateway counts whole seconds, and a funnel at whole seconds replies the same.
func TestConformsToSpringGateway(t *testing.T) {
	var file struct {
		Cases []struct {
			Rate, Capacity, Requested int64
			Seconds                   []int64 `json:"t_s"`
			// Reply has whether the call was allowed, and the tokens left.
			Reply [][2]int64
		}
	}
	conformance(t, "spring_gateway.json", &file)
	require.NotEmpty(t, file.Cases)
	for _, c := range file.Cases {
		t.Run(fmt.Sprintf("%d of %d at %d per second", c.Requested, c.Capacity, c.Rate), func(t *testing.T) {
			require.Len(t, c.Reply, len(c.Seconds))
			p := policy.Must(policy.Funnel(c.Capacity, c.Rate, time.Second))
			var word uint64
			for i, second := range c.Seconds {
				next, d := p.Take(word, engineStart+policy.Instant(second)*policy.Instant(time.Second), c.Requested, 0)
				word = next
				assert.Equal(t, c.Reply[i], [2]int64{oneIf(d.Allowed), d.Remaining}, "at %d s", second)
			}
		})
	}
}

func oneIf(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// fromRedisCell makes the funnel of CL.THROTTLE's arguments, and returns their quantity or 1.
func fromRedisCell(t *testing.T, args string) (limit policy.Policy, quantity int64) {
	t.Helper()
	var burst, count, seconds int64
	quantity = 1
	n, err := fmt.Sscan(args, &burst, &count, &seconds, &quantity)
	require.Len(t, strings.Fields(args), n, "%v", err)
	limit, err = policy.Funnel(burst+1, count, time.Duration(seconds)*time.Second)
	require.NoError(t, err)
	return limit, quantity
}

// Promise: Policies conform to redis-cell, Spring's gateway and Guava.
func TestConformsToRedisCell(t *testing.T) {
	var file struct {
		Sequence struct {
			Args  string
			Steps []struct {
				Millis   int64 `json:"t_ms"`
				Quantity int64
				Reply    [5]int64
			}
		}
		Fresh []struct {
			Args  string
			Reply [5]int64
		} `json:"fresh_key"`
	}
	conformance(t, "cl_throttle.json", &file)

	t.Run(file.Sequence.Args, func(t *testing.T) {
		limit, _ := fromRedisCell(t, file.Sequence.Args)
		require.NotEmpty(t, file.Sequence.Steps)
		var word uint64
		for i, s := range file.Sequence.Steps {
			next, d := limit.Take(word, engineStart+policy.Instant(s.Millis)*policy.Instant(time.Millisecond), s.Quantity, 0)
			word = next
			assert.Equal(t, s.Reply, d.RedisCell(), "step %d: %d at %d ms", i, s.Quantity, s.Millis)
		}
	})

	require.NotEmpty(t, file.Fresh)
	for _, c := range file.Fresh {
		t.Run("fresh "+c.Args, func(t *testing.T) {
			p, quantity := fromRedisCell(t, c.Args)
			_, d := p.Take(0, engineStart, quantity, 0)
			assert.Equal(t, c.Reply, d.RedisCell())
		})
	}
}

func FuzzRedisCell(f *testing.F) {
	f.Add(true, int64(5), int64(4), int64(0), int64(time.Second))
	f.Add(false, int64(5), int64(0), int64(1), int64(time.Second+1))
	f.Add(false, int64(5), int64(0), int64(policy.Never), int64(math.MaxInt64))
	f.Add(false, int64(0), int64(-1), int64(-1), int64(math.MinInt64))
	// The zero decision is a refusal.
	f.Add(false, int64(0), int64(0), int64(0), int64(0))
	f.Add(true, int64(16), int64(15), int64(0), int64(2*time.Second))
	f.Add(false, int64(16), int64(3), int64(1), int64(time.Second))
	// Both times are rounded up.
	f.Add(false, int64(1), int64(0), int64(time.Second+1), int64(2*time.Second-1))
	f.Add(false, int64(1), int64(0), int64(time.Minute+80*time.Microsecond), int64(time.Minute+80*time.Microsecond))
	f.Add(false, int64(math.MaxInt64), int64(math.MaxInt64), int64(policy.Never-1), int64(math.MaxInt64))
	f.Fuzz(func(t *testing.T, allowed bool, limit, remaining, retry, reset int64) {
		decision := policy.Decision{
			Allowed: allowed, Limit: limit, Remaining: remaining,
			RetryAfter: time.Duration(retry), ResetAfter: time.Duration(reset),
		}
		up := func(nanos int64) int64 {
			return ceilInt(new(big.Rat).SetFrac(big.NewInt(nanos), big.NewInt(int64(time.Second)))).Int64()
		}
		want := [5]int64{1, limit, remaining, up(retry), up(reset)}
		// Up to 100 µs of reset are the limit's own rounding.
		if reset > 1 {
			want[4] = up(reset - min(reset-1, 100_000))
		}
		if allowed {
			want[0] = 0
		}
		if allowed || decision.RetryAfter == policy.Never {
			want[3] = -1
		}
		if got := decision.RedisCell(); got != want {
			t.Errorf("%+v: %v, want %v", decision, got, want)
		}
	})
}

// guavaSequence holds the calls of a Guava rate limiter, and each wait in microseconds.
type guavaSequence struct {
	QPS        int64
	Warmup     float64   `json:"warmup_s"`
	ColdFactor float64   `json:"cold_factor"`
	Ops        []guavaOp `json:"ops"`
	Waits      []int64   `json:"wait_us"`
}

// guavaOp is ["acquire", permits] or ["idle", seconds].
type guavaOp struct {
	name   string
	amount float64
}

func (o *guavaOp) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[2]any{&o.name, &o.amount})
}

// run makes the calls from the engine's first instant, sleeping as told, and returns the waits in
// microseconds. Guava computes in doubles and truncates to microseconds; a policy rounds up to a
// nanosecond or, while warming up, a fifth of a microsecond. So the nearest is taken.
func (s guavaSequence) run(t *testing.T, limit policy.Policy) (waits []int64) {
	t.Helper()
	var word uint64
	now := engineStart
	for _, op := range s.Ops {
		switch op.name {
		case "idle":
			now += policy.Instant(op.amount * float64(time.Second))
		case "acquire":
			next, decision := limit.Take(word, now, int64(op.amount), math.MaxInt64)
			require.True(t, decision.Allowed)
			waits = append(waits, int64(decision.Wait.Round(time.Microsecond)/time.Microsecond))
			word = next
			now += policy.Instant(decision.Wait)
		default:
			require.Fail(t, "the operation is unknown", op.name)
		}
	}
	return waits
}

func TestConformsToGuava(t *testing.T) {
	var file struct {
		Bursty    []guavaSequence
		WarmingUp []guavaSequence `json:"warming_up"`
	}
	conformance(t, "guava.json", &file)

	require.NotEmpty(t, file.Bursty)
	for i, s := range file.Bursty {
		t.Run(fmt.Sprintf("bursty %d at %d per second", i, s.QPS), func(t *testing.T) {
			// At most a second's worth is stored.
			p := policy.Must(policy.Bursty(s.QPS, time.Second, s.QPS))
			assert.Equal(t, s.Waits, s.run(t, p))
		})
	}
	require.NotEmpty(t, file.WarmingUp)
	for i, s := range file.WarmingUp {
		t.Run(fmt.Sprintf("warming up %d at %d per second", i, s.QPS), func(t *testing.T) {
			warmup := time.Duration(s.Warmup * float64(time.Second))
			p := policy.Must(policy.WarmingUp(s.QPS, time.Second, warmup, s.ColdFactor))
			assert.Equal(t, s.Waits, s.run(t, p))
		})
	}
}

// Whole seconds agree with exact arithmetic. A fresh key is as good as new within its window.
// Promise: Seconds for clients are rounded once.
func TestSecondsAreRoundedOnce(t *testing.T) {
	dice := rand.New(rand.NewPCG(28, 12))
	seconds := func(most int64) int64 { return 1 + dice.Int64N(most) }
	for range 100_000 {
		now := policy.Instant(1 + dice.Int64N(1<<56))
		capacity, count, per := seconds(1000), seconds(9999), seconds(86400)
		n := 1 + dice.Int64N(capacity)
		_, decision := policy.Must(policy.Funnel(capacity, count, time.Duration(per)*time.Second)).Take(0, now, n, 0)
		assert.Equal(t, (n*per+count-1)/count, decision.RedisCell()[4], "%d of a funnel %d, %d/%ds at %d", n, capacity, count, per, now)

		_, decision = policy.Must(policy.FixedWindow(capacity, time.Duration(per)*time.Second)).Take(0, now, n, 0)
		assert.Equal(t, per, decision.RedisCell()[4], "%d of a window %d/%ds at %d", n, capacity, per, now)
	}
}
