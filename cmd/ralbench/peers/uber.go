package peers

import (
	"time"

	"go.uber.org/ratelimit"

	"github.com/ral-limiter/ral/bench"
)

// Uber is go.uber.org/ratelimit, asked by Take, its only call. It is for a single key and never
// refuses: an early call sleeps. It only does workloads of one key that pass every call, to show
// pacing without a map. It cannot express a bench.Limit, as no burst passes at its beginning. It
// gets its fastest pace, which no caller reaches, and as much slack, so that callers that overtake
// each other do not sleep.
func Uber() bench.Contender {
	return bench.Contender{
		Name:    "uber",
		About:   "go.uber.org/ratelimit, one key, at a pace that no caller reaches",
		Note:    "has one key and no map, and makes callers wait instead of refusing",
		Promise: bench.Pacing,
		Needs:   func(w bench.Workload) bool { return keepsAll(w) && w.Keys == 1 && w.Known == 0 && w.AllPass() },
		New: func(bench.Setup) (bench.Limiter, error) {
			l := ratelimit.New(fastest, ratelimit.WithSlack(fastest))
			return asking(func(names []string) int {
				return bench.AskEach(names, func(string) bool { l.Take(); return true })
			})
		},
	}
}

// fastest is a call a nanosecond, too short for any call.
const fastest = int(time.Second / time.Nanosecond)
