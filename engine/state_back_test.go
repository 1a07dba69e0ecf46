package engine

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/statefile"
	"github.com/ral-limiter/ral/policy"
)

// If the wall clock went back and the limit has changed, what a key used counts as under
// SetPolicy at the last instant.
func TestWallClockThatWentBackBeforeAnotherLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const last = policy.Instant(100 * time.Second)
		for _, limits := range [][2]string{
			{"at most 5/10m", "at most 5/1m"}, {"window 5/h", "window 5/20s"}, {"sliding 5/h", "sliding 5/20s"},
			{"funnel 5, 5/h", "funnel 5, 5/20s"}, {"queue 4, 5/h", "queue 4, 5/20s"},
		} {
			from, to := parsed(t, limits[0]), parsed(t, limits[1])
			word, _ := from.Take(0, last-policy.Instant(90*time.Second), 1, 0)
			for {
				next, d := from.Take(word, last, 1, 0)
				if !d.Allowed {
					break
				}
				word = next
			}
			for _, back := range []time.Duration{0, time.Second, time.Hour, 100 * 365 * 24 * time.Hour} {
				var file bytes.Buffer
				zero := time.Now().Add(back - time.Duration(last))
				w, err := statefile.NewWriter(&file, statefile.Header{Epoch: zero, Limit: from.String(), Codec: "string"})
				require.NoError(t, err)
				require.NoError(t, w.Add([]byte("a"), word, 0))
				require.NoError(t, w.Close(last))
				e, err := Load[string](&file, Config{Policy: to})
				require.NoError(t, err)
				require.False(t, e.Choke("a"), "%v, %v back", limits, back)
				check(t, e)
			}
		}
	})
}
