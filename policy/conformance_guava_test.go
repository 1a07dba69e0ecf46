package policy_test

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/ral-limiter/ral/policy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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
func (s guavaSequence) run(t *testing.T, p policy.Policy) (waits []int64) {
	t.Helper()
	var word uint64
	now := engineStart
	for _, op := range s.Ops {
		switch op.name {
		case "idle":
			now += policy.Instant(op.amount * float64(time.Second))
		case "acquire":
			next, d := p.Take(word, now, int64(op.amount), math.MaxInt64)
			require.True(t, d.Allowed)
			waits = append(waits, int64(d.Wait.Round(time.Microsecond)/time.Microsecond))
			word = next
			now += policy.Instant(d.Wait)
		default:
			require.Fail(t, "unknown", op.name)
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
