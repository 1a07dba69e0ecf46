package peers

import (
	"time"

	"go.uber.org/ratelimit"

	"github.com/ral-limiter/ral/bench"
)

// Uber is go.uber.org/ratelimit, asked by Take, its only call. It is for one key and
// never refuses: a call that comes too early is put to sleep. So it can only do a
// workload of one key in which every call passes, and its figures are those of pacing
// without a map. No burst may pass at its beginning, so a bench.Limit cannot be
// expressed; it is given the fastest pace it has, which no caller reaches, and as much
// slack, so that callers that overtake each other do not sleep either.
func Uber() bench.Contender {
	return bench.Contender{
		Name:    "uber",
		About:   "go.uber.org/ratelimit, one key, at a pace that no caller reaches",
		Note:    "has one key and no map, and makes callers wait instead of refusing",
		Promise: bench.Pacing,
		Needs:   func(w bench.Workload) bool { return keepsAll(w) && w.Keys == 1 && w.Known == 0 && w.AllPass() },
		New: func(bench.Setup) (bench.Limiter, error) {
			return uber{Limiter: ratelimit.New(fastest, ratelimit.WithSlack(fastest))}, nil
		},
	}
}

// fastest is one call a nanosecond, in which no call fits.
const fastest = int(time.Second / time.Nanosecond)

type uber struct {
	inMemory
	ratelimit.Limiter
}

// Choke implements bench.Limiter.
func (u uber) Choke(string) bool {
	u.Take()
	return true
}

// ChokeAll implements bench.Limiter.
func (u uber) ChokeAll(keys []string) int {
	return bench.AskEach(keys, func(key string) bool { return u.Choke(key) })
}
