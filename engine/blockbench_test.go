package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkBlocks is Choke on a known key while other keys are blocked or a Penalty counts
// refusals, and on a blocked key.
func BenchmarkBlocks(b *testing.B) {
	counting := Penalty{Refusals: 1024, Within: time.Second, For: 1}
	for _, of := range []struct {
		name    string
		penalty Penalty
		blocked int
		key     string
	}{
		{"no key blocked", Penalty{}, 0, "passes"},
		{"a penalty, no key blocked", counting, 0, "passes"},
		{"1 other key blocked", Penalty{}, 1, "passes"},
		{"100,000 other keys blocked", Penalty{}, 100_000, "passes"},
		{"refused", Penalty{}, 0, "refused"},
		{"refused, counted by a penalty", counting, 0, "refused"},
		{"blocked", Penalty{}, 1, "other 0"},
		{"blocked, of 100,000", Penalty{}, 100_000, "other 7"},
	} {
		b.Run(of.name, func(b *testing.B) {
			e := open[string](b, Config{Policy: funnel(1<<40, 1<<20, time.Second), Penalty: of.penalty})
			for i := range of.blocked {
				require.NoError(b, e.Block(fmt.Sprint("other ", i), time.Hour))
			}
			e.Take("refused", 1<<40)
			e.Choke(of.key)
			settled(b, e)
			for b.Loop() {
				e.Choke(of.key)
			}
		})
	}
}
