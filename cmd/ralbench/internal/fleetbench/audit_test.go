package fleetbench

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/bench"
)

const ms = time.Millisecond

var perMs = bench.Limit{Capacity: 2, Count: 1, Per: ms}

func spansAt(times ...time.Duration) (calls []span) {
	for _, t := range times {
		calls = append(calls, span{t, t})
	}
	return calls
}

// slowOver is over by looking at all windows.
func slowOver(l bench.Limit, passed []span) (worst int64) {
	for _, first := range passed {
		for _, last := range passed {
			if last.end < first.begin {
				continue
			}
			n := int64(0)
			for _, p := range passed {
				if p.begin >= first.begin && p.end <= last.end {
					n++
				}
			}
			worst = max(worst, n-l.Most(last.end-first.begin))
		}
	}
	return worst
}

func TestAuditFindsTheSameAsALookAtAllWindows(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	found := 0
	for range 3000 {
		limit := bench.Limit{Capacity: 1 + random.Int64N(4), Count: 1 + random.Int64N(5), Per: time.Duration(1 + random.IntN(9))}
		var passed []span
		for range random.IntN(30) {
			begin := time.Duration(random.IntN(40))
			passed = append(passed, span{begin, begin + time.Duration(random.IntN(6))})
		}
		want := slowOver(limit, passed)
		if want > 0 {
			found++
		}
		if !assert.Equal(t, want, over(limit, passed), "%+v of %+v", passed, limit) {
			return
		}
	}
	assert.Greater(t, found, 300)
	assert.Less(t, found, 2700)
}
