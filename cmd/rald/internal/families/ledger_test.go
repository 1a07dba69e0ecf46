package families

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Also those that look like notes.
func TestKeysOfAllBytesAreSaved(t *testing.T) {
	dir, limit := t.TempDir(), parse("funnel 10, 1/d")
	keys := []string{"", "\x00", "\x00\x01", "\x00\x01\x00", "\x00\x01funnel 1, 1/s\x00k", "\x00\x01\x00\x01k", "\x00api\x00k", "k", "\x01"}
	s := open(t, Config{Dir: dir, Every: time.Hour})
	family, err := s.Of(limit)
	require.NoError(t, err)
	for i, key := range keys {
		require.True(t, EngineOf(family).TakeWith(limit, key, int64(i+1)).Allowed)
		if i%2 == 0 {
			require.NoError(t, family.(InProcess).Ledger().Carry(key, limit, parse("funnel 20, 1/d")))
		}
	}
	require.NoError(t, s.Close())
	s = open(t, Config{Dir: dir, Every: time.Hour})
	family, err = s.Of(limit)
	require.NoError(t, err)
	noted := map[string]bool{}
	family.(InProcess).Ledger().Each(func(key string) { noted[key] = true })
	for i, key := range keys {
		assert.EqualValues(t, 9-i, EngineOf(family).TakeWith(limit, key, 0).Remaining, "%q", key)
		assert.Equal(t, i%2 == 0, noted[key], "%q", key)
	}
}

// A word is translated once for each of its limits, and after Clear from the owner's limit.
func TestLedgerTranslatesOnce(t *testing.T) {
	s := open(t, Config{})
	slow, fast := parse("funnel 100, 1/d"), parse("funnel 100, 2/d")
	family, err := s.Of(slow)
	require.NoError(t, err)
	ledger := family.(InProcess).Ledger()
	require.True(t, EngineOf(family).TakeWith(slow, "k", 40).Allowed)
	for range 3 {
		require.NoError(t, ledger.Carry("k", slow, fast))
		assert.EqualValues(t, 60, EngineOf(family).TakeWith(fast, "k", 0).Remaining)
	}
	require.NoError(t, ledger.Carry("k", slow, parse("funnel 100, 2/d")))
	assert.EqualValues(t, 60, EngineOf(family).TakeWith(fast, "k", 0).Remaining, "an equal limit")
	require.NoError(t, ledger.Carry("k", fast, slow))
	assert.EqualValues(t, 60, EngineOf(family).TakeWith(slow, "k", 0).Remaining)
	ledger.Clear()
	require.NoError(t, ledger.Carry("k", slow, fast))
	assert.EqualValues(t, 60, EngineOf(family).TakeWith(fast, "k", 0).Remaining)
	require.NoError(t, s.Close())
	assert.Error(t, ledger.Carry("k", fast, slow))
	noted := 0
	ledger.Each(func(string) { noted++ })
	assert.Equal(t, 1, noted)
	require.NoError(t, ledger.Carry("k", fast, fast), "the failure has left the note")
}
