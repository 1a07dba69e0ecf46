package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/policy"
)

// Promise: Refusals by every verb are listed.
func TestRefusalsOfEveryVerbAreInTheList(t *testing.T) {
	forEachVerb(t, Config{Policy: funnel(1, 1, 24*time.Hour)}, func(t *testing.T, e *Engine[string], call func(string, int64) (policy.Decision, bool)) {
		for _, key := range []string{"used", "blocked"} {
			require.True(t, e.Choke(key))
			settled(t, e)
			if key == "blocked" {
				require.NoError(t, e.Block(key, time.Hour))
			}
			for range 7 {
				call(key, 1)
			}
			list := e.MostRefused(1).Keys
			require.Len(t, list, 1)
			assert.Equal(t, RefusedKey[string]{Key: key, Refusals: 7, Least: 7, Most: 7, Last: list[0].Last}, list[0])
			require.True(t, e.Reset(key))
			// The list is of the last minutes.
			time.Sleep(time.Hour)
		}
		require.EqualValues(t, 14, e.Stats().Refused)
	})
}

func TestRefusedKeysMayBeLeftOut(t *testing.T) {
	e := open[string](t, Config{Policy: funnel(1, 1, time.Hour), NoRefusedKeys: true})
	require.False(t, e.Choke("key") && e.Choke("key"))
	assert.Equal(t, RefusedList[string]{Keys: []RefusedKey[string]{}}, e.MostRefused(10))
}
