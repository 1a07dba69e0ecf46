package store_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/policy"
)

// conformance reads the figures of other limiters that package policy conforms to.
func conformance(t *testing.T, name string, into any) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("../../../policy/testdata/conformance", name))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, into))
}

// atMicros returns a call of the policy, in Redis, at so many microseconds.
func atMicros(t *testing.T, p policy.Policy) func(us, n int64, patience time.Duration) policy.Decision {
	var clock int64
	s := clocked(t, connect(t, shared), &clock)
	l := limit(t, s, p)
	return func(us, n int64, patience time.Duration) policy.Decision {
		clock = us
		taken, err := s.Take(context.Background(), l, "key", n, patience)
		require.NoError(t, err)
		return taken.Decision
	}
}

func TestConformsToSpringGateway(t *testing.T) {
	var file struct {
		Cases []struct {
			Rate, Capacity, Requested int64
			Seconds                   []int64    `json:"t_s"`
			Reply                     [][2]int64 // allowed, tokens left
		}
	}
	conformance(t, "spring_gateway.json", &file)
	require.NotEmpty(t, file.Cases)
	for _, c := range file.Cases {
		t.Run(fmt.Sprintf("%d of %d at %d per second", c.Requested, c.Capacity, c.Rate), func(t *testing.T) {
			take := atMicros(t, policy.Must(policy.Funnel(c.Capacity, c.Rate, time.Second)))
			for i, at := range c.Seconds {
				d := take(at*1_000_000, c.Requested, 0)
				assert.Equal(t, c.Reply[i], [2]int64{oneIf(d.Allowed), d.Remaining}, "at %d s", at)
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
	// The funnel of CL.THROTTLE's max_burst, count and period, and the quantity.
	parse := func(t *testing.T, args string) (policy.Policy, int64) {
		var burst, count, seconds int64
		quantity := int64(1)
		n, err := fmt.Sscan(args, &burst, &count, &seconds, &quantity)
		require.Len(t, strings.Fields(args), n, "%v", err)
		return policy.Must(policy.Funnel(burst+1, count, time.Duration(seconds)*time.Second)), quantity
	}
	t.Run(file.Sequence.Args, func(t *testing.T) {
		require.NotEmpty(t, file.Sequence.Steps)
		p, _ := parse(t, file.Sequence.Args)
		take := atMicros(t, p)
		for i, s := range file.Sequence.Steps {
			assert.Equal(t, s.Reply, take(s.Millis*1000, s.Quantity, 0).RedisCell(), "step %d: %d at %d ms", i, s.Quantity, s.Millis)
		}
	})
	require.NotEmpty(t, file.Fresh)
	for _, c := range file.Fresh {
		t.Run("fresh "+c.Args, func(t *testing.T) {
			p, quantity := parse(t, c.Args)
			assert.Equal(t, c.Reply, atMicros(t, p)(0, quantity, 0).RedisCell())
		})
	}
}

// Guava's waits are in microseconds, as Redis's clock is: a caller that was told to
// wait comes at the nearest.
func TestConformsToGuava(t *testing.T) {
	var file struct {
		Bursty []struct {
			QPS   int64
			Ops   [][2]any
			Waits []int64 `json:"wait_us"`
		}
	}
	conformance(t, "guava.json", &file)
	require.NotEmpty(t, file.Bursty)
	for i, s := range file.Bursty {
		t.Run(fmt.Sprintf("bursty %d at %d per second", i, s.QPS), func(t *testing.T) {
			take := atMicros(t, policy.Must(policy.Bursty(s.QPS, time.Second, s.QPS)))
			var waits []int64
			var now time.Duration
			for _, op := range s.Ops {
				switch amount := op[1].(float64); op[0] {
				case "idle":
					now += time.Duration(amount * float64(time.Second))
				case "acquire":
					d := take(now.Round(time.Microsecond).Microseconds(), int64(amount), math.MaxInt64)
					require.True(t, d.Allowed)
					waits = append(waits, int64(d.Wait.Round(time.Microsecond)/time.Microsecond))
					now += d.Wait
				default:
					require.Fail(t, "unknown", op[0])
				}
			}
			assert.Equal(t, s.Waits, waits)
		})
	}
}
