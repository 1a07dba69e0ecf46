package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/policy"
)

type noFamily struct{ policy.Policy }

// Promise: `ChangeLimit` opens no key and refuses another family.
func TestChangeLimitRefusesOtherFamilies(t *testing.T) {
	small := funnel(10, 10, time.Hour)
	e := open[string](t, Config{Name: "api", Policy: small})
	require.True(t, e.Take("key", 10).Allowed)
	before := e.Peek("key", 0).Remaining
	window := policy.Must(policy.FixedWindow(10, time.Hour))
	for _, key := range []string{"key", "unknown"} {
		for _, c := range []struct {
			from, to policy.Policy
			field    string
		}{{window, small, "from"}, {small, window, "to"}, {noFamily{small}, nil, "from"}, {nil, noFamily{small}, "to"}} {
			err := e.ChangeLimit(key, c.from, c.to)
			var refused *policy.FieldError
			require.ErrorAs(t, err, &refused)
			assert.Equal(t, []string{"ChangeLimit", c.field}, []string{refused.Of, refused.Field})
			assert.Contains(t, err.Error(), `engine "api"`)
			assert.Contains(t, err.Error(), small.String())
		}
	}
	require.EqualError(t, e.ChangeLimit("key", small, small, 7), "ral: ChangeLimit: keep is 7, want KeepUsed or KeepShare")
	assert.Equal(t, before, e.Peek("key", 0).Remaining)
	require.NoError(t, e.Close())
	assert.ErrorIs(t, e.ChangeLimit("key", small, small), ErrClosed)

	odd := open[string](t, Config{Policy: pacer{time.Second, time.Minute}})
	var refused *policy.FieldError
	assert.ErrorAs(t, odd.ChangeLimit("key", nil, nil), &refused, "a limit without a family must be refused")
}
