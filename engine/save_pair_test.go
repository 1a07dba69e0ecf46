package engine

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The key's limit changes at each moment of a save, which cannot be in the middle of encode.
//
// Promise: A key's bytes in a saved state may tell under which limit its state stands.
func TestSavePairsBytesWithTheState(t *testing.T) {
	slow, fast := funnel(100, 1, time.Hour), funnel(100, 4, time.Hour)
	for call := range 6 {
		for _, after := range []bool{false, true} {
			calls, limit, saved := 0, "slow", map[string]string{}
			var e *Engine[string]
			change := func(now bool) {
				if now && calls == call {
					require.NoError(t, e.ChangeLimit("key", slow, fast))
					limit = "fast"
				}
			}
			codec := KeyCodec("string", func(dst []byte, key string) ([]byte, error) {
				change(!after)
				dst = append(append(dst, key+" "...), limit...)
				change(after)
				calls++
				return dst, nil
			}, func(src []byte) (string, error) {
				key, limit, _ := strings.Cut(string(src), " ")
				saved[key] = limit
				return key, nil
			})
			config := inFile(t, Config{Policy: slow, State: State{Every: time.Hour}})
			var err error
			e, err = New(config, codec)
			require.NoError(t, err)
			require.True(t, e.TakeWith(slow, "key", 40).Allowed)
			require.NoError(t, e.Sync())
			require.LessOrEqual(t, calls, 4, "a change during the save must cost one more reading")
			require.NoError(t, e.keeper.abandon())

			again, err := New(config, codec)
			require.NoError(t, err)
			require.Contains(t, saved, "key")
			if saved["key"] == "slow" {
				require.NoError(t, again.ChangeLimit("key", slow, fast))
			}
			assert.EqualValues(t, 60, again.TakeWith(fast, "key", 0).Remaining, "changed in call %d, after its answer: %t", call, after)
			require.NoError(t, again.Close())
			assert.Error(t, e.Close(), "Close must fail, as the file is no longer the engine's own")
		}
	}
}

// A codec whose bytes never agree loses its own key only.
func TestCodecThatNeverAgreesEndsASave(t *testing.T) {
	calls := 0
	e, err := New(inFile(t, Config{Policy: funnel(100, 1, time.Hour), State: State{Every: time.Hour}}), KeyCodec("string", func(dst []byte, key string) ([]byte, error) {
		calls++
		if key == "odd" {
			dst = append(dst, byte(calls))
		}
		return append(dst, key...), nil
	}, func(src []byte) (string, error) { return string(src), nil }))
	require.NoError(t, err)
	for _, key := range []string{"odd", "even"} {
		require.True(t, e.Choke(key))
	}
	require.NoError(t, e.Sync())
	stats := e.Stats()
	assert.EqualValues(t, 1, stats.Unsaved)
	require.NoError(t, e.Close())
}
