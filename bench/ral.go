package bench

import (
	"time"

	"github.com/ral-limiter/ral/cell"
	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/policy"
)

// Ral returns Ral as a contender, in one of its admission modes and otherwise as
// it is by default.
func Ral(mode cell.Admission) Contender {
	about, note := "callers advance a key's word in place", ""
	if mode == cell.Queued {
		about = "the original's protocol: callers decide, one writer records"
		note = "lets too many pass by design, when callers meet at a key"
	}
	return Contender{
		Name:  "Ral " + mode.String(),
		About: about,
		Note:  note,
		Exact: mode == cell.Exact,
		Idles: true,
		New: func(s Setup) (Limiter, error) {
			p, err := policy.Funnel(s.Limit.Capacity, s.Limit.Count, s.Limit.Per)
			if err != nil {
				return nil, err
			}
			e, err := engine.New[string](engine.Config{Policy: p, MaxKeys: s.MaxKeys, Idle: s.Idle, Admission: mode})
			if err != nil {
				return nil, err
			}
			return ral{e}, nil
		},
	}
}

// ral is an engine as a Limiter.
type ral struct{ *engine.Engine[string] }

// ChokeAll implements Limiter.
func (r ral) ChokeAll(keys []string) (passed int) {
	cell := r.Cell
	for _, key := range keys {
		if cell.Choke(key) {
			passed++
		}
	}
	return passed
}

// Settle implements Settler: the queue is empty, and stays so for a moment in
// which the writer files what it finds in the nursery.
func (r ral) Settle() {
	const pause = 100 * time.Microsecond
	deadline := time.Now().Add(time.Second)
	for empty := 0; empty < 3 && time.Now().Before(deadline); time.Sleep(pause) {
		if r.Stats().QueueDepth == 0 {
			empty++
		} else {
			empty = 0
		}
	}
}

// Counts implements Counter.
func (r ral) Counts() Counts {
	s := r.Stats()
	return Counts{
		Overadmitted: int64(s.Overadmitted),
		Unavailable:  int64(s.Unavailable),
		Evicted:      int64(s.Evicted),
		Forgiven:     int64(s.Forgiven),
		Restarts:     int64(s.Restarts),
	}
}
