package engine

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/core/statefile"
	"github.com/ral-limiter/ral/policy"
)

// Promise: A state file has no units in use, since the calls that would release them are gone.
func TestStateHasNoUnitsInUse(t *testing.T) {
	for name, plan := range map[string]policy.Policy{"one limit": nil, "a plan": parsed(t, "in flight 20, 1h at most")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				config := inFile(t, Config{Policy: parsed(t, "in flight 3, 1h at most")})
				var more []Option[string]
				if plan != nil {
					more = append(more, PolicyFor(func(string) policy.Policy { return plan }))
				}
				e, err := New(config, more...)
				require.NoError(t, err)
				if plan == nil {
					require.NoError(t, e.SetPolicy(parsed(t, "in flight 2, 1m at most")))
				}
				limit := e.LimitFor("a").Limit()
				for _, key := range []string{"a", "b"} {
					r := e.Reserve(key, limit, 0)
					require.True(t, r.Allowed)
				}
				require.NoError(t, e.Block("c", time.Hour))
				n, err := e.save(&bytes.Buffer{})
				require.NoError(t, err)
				assert.Equal(t, 1, n.keys, "only the blocked key must be saved")
				require.NoError(t, e.Close())

				e, err = New(config, more...)
				require.NoError(t, err)
				defer func() { check(t, e) }()
				assert.Zero(t, e.Len())
				assert.Equal(t, time.Hour, e.Blocked("c"))
				for _, key := range []string{"a", "b"} {
					d := e.Peek(key, 0)
					assert.Equal(t, d.Limit, d.Remaining, key)
				}
			})
		})
	}
}

// Promise: A `Tiered` keeps the state of its rates, and no units in use.
func TestTieredStateHasNoUnitsInUse(t *testing.T) {
	config := inFile(t, Config{Policy: parsed(t, "window 30/h")})
	for left := int64(29); left >= 27; left-- {
		e, err := NewTiered[string](config, parsed(t, "in flight 1, 1h at most"))
		require.NoError(t, err)
		require.True(t, e.Choke("a"))
		require.False(t, e.Choke("a"))
		assert.Equal(t, left, e.engines[0].Peek("a", 0).Remaining)
		require.NoError(t, e.Close())
	}
}

// Promise: A state file with units in use is loaded without them.
func TestLoadDropsUnitsInUse(t *testing.T) {
	ten := parsed(t, "in flight 10, 1h at most")
	for _, text := range []string{"in flight 10, 1h at most", "in flight 3, 1h at most", "in flight 5, 2h at most"} {
		synctest.Test(t, func(t *testing.T) {
			codec, err := keyCodec[string](nil)
			require.NoError(t, err)
			var file bytes.Buffer
			w, err := statefile.NewWriter(&file, statefile.Header{Epoch: time.Now().Add(-time.Hour), Limit: ten.String(), Codec: codec.Name()})
			require.NoError(t, err)
			word, _ := ten.Take(0, policy.Instant(time.Hour), 2, 0)
			key, err := codec.Append(nil, "a")
			require.NoError(t, err)
			require.NoError(t, w.Add(key, word, 0))
			require.NoError(t, w.Close(policy.Instant(time.Hour)))

			e, err := Load[string](&file, Config{Policy: parsed(t, text)})
			require.NoError(t, err)
			defer func() { check(t, e) }()
			assert.Zero(t, e.Len())
			assert.Equal(t, e.Limit().Limit(), e.Peek("a", 0).Remaining)
		})
	}
}
