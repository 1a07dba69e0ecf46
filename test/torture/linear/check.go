package linear

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"
)

type Verdict struct {
	// Illegal lists the keys whose calls no order explains, Undecided those that ran out of time.
	// After the first such key the search ends.
	Illegal, Undecided []int
	// Liberties is a number of liberties that explains all other keys, the least if a larger one
	// would exceed the engine's count.
	Liberties uint64
}

// most bounds the liberties tried for a key.
const most = 256

// search looks for an order of a key's calls.
type search struct {
	key     int
	m       *model
	history []porcupine.Operation
	result  porcupine.CheckResult
	// The least number of liberties that explains the calls is from fewest to enough, if any.
	fewest, enough int
}

// Check checks the history of an engine that counted taken liberties, several keys in parallel.
// limit bounds the time for a key and number of liberties.
func Check(scenario *Scenario, history []Op, taken uint64, limit time.Duration) Verdict {
	byKey := map[int][]*Op{}
	for i := range history {
		byKey[history[i].Key] = append(byKey[history[i].Key], &history[i])
	}
	var all []*search
	for key, ops := range byKey {
		all = append(all, &search{
			key: key, m: &model{s: scenario, spread: spreads(ops)}, history: operations(ops), fewest: plain(scenario, ops),
		})
	}
	next := make(chan *search)
	var checkers sync.WaitGroup
	var failed atomic.Bool
	for range runtime.GOMAXPROCS(0) {
		checkers.Go(func() {
			for search := range next {
				if failed.Load() {
					continue // a failure is enough
				}
				search.run(int(min(taken, most)), limit)
				if search.result != porcupine.Ok {
					failed.Store(true)
				}
			}
		})
	}
	for _, search := range all {
		next <- search
	}
	close(next)
	checkers.Wait()

	var verdict Verdict
	for _, search := range all {
		if search.result == porcupine.Ok {
			verdict.Liberties += uint64(search.enough)
		}
	}
	for _, search := range all {
		// If these are more than were taken, fewer may be enough.
		for search.result == porcupine.Ok && search.fewest < search.enough && verdict.Liberties > taken {
			verdict.Liberties -= uint64(search.enough)
			search.narrow(limit)
			verdict.Liberties += uint64(search.enough)
		}
		switch search.result {
		case porcupine.Illegal:
			verdict.Illegal = append(verdict.Illegal, search.key)
		case porcupine.Unknown:
			verdict.Undecided = append(verdict.Undecided, search.key)
		}
	}
	slices.Sort(verdict.Illegal)
	slices.Sort(verdict.Undecided)
	return verdict
}

// run tries to explain the calls, doubling the number of liberties. Proofs that a number is too
// small, or enough but needlessly large, may take long, so each has little time at first.
func (k *search) run(most int, limit time.Duration) {
	most = max(most, k.fewest)
	for patience := limit / 16; ; patience = min(4*patience, limit) {
		for tried := k.fewest; ; tried = min(max(2*tried, 1), most) {
			k.enough, k.result = tried, k.try(tried, patience)
			if k.result == porcupine.Illegal {
				k.fewest = tried + 1
			}
			if k.result == porcupine.Ok || k.fewest > most {
				return
			}
			if tried == most {
				break
			}
		}
		if patience >= limit {
			return
		}
	}
}

func (k *search) narrow(limit time.Duration) {
	middle := (k.fewest + k.enough) / 2
	switch k.try(middle, limit) {
	case porcupine.Ok:
		k.enough = middle
	case porcupine.Illegal:
		k.fewest = middle + 1
	default:
		k.result = porcupine.Unknown
	}
}

// try looks for an order of the calls with so many liberties. It first searches without the rare
// events, which is fast and nearly always enough.
func (k *search) try(liberties int, limit time.Duration) porcupine.CheckResult {
	simple := &model{s: k.m.s}
	usual := slices.DeleteFunc(slices.Clone(k.history), func(operation porcupine.Operation) bool {
		verb := operation.Input.(*Op).Verb
		return verb == Grab || verb == Release
	})
	if porcupine.CheckOperationsTimeout(simple.spec(liberties), usual, max(limit/4, 1)) == porcupine.Ok {
		return porcupine.Ok
	}
	return porcupine.CheckOperationsTimeout(k.m.spec(liberties), k.history, max(limit, 1))
}

// plain counts refusals that no word gives: within the limit, of a key that owes nothing.
func plain(scenario *Scenario, ops []*Op) (n int) {
	for _, op := range ops {
		decision := op.Decision
		if scenario.Liberty() == Refuses && op.Verb != Choke && op.Verb != Reset && !decision.Allowed && decision.Limit > 0 &&
			decision.ResetAfter == 0 && decision.RetryAfter == scenario.Idle {
			n++
		}
	}
	return n
}

func operations(ops []*Op) []porcupine.Operation {
	history := make([]porcupine.Operation, len(ops))
	for i, op := range ops {
		history[i] = porcupine.Operation{ClientId: op.Client, Input: op, Call: op.Call, Return: op.Return}
	}
	return history
}

// spreads returns, by reservation given back, how far Cancel may miscount the units that other
// calls gave back in between. It overcounts, since a call counts its units once for each attempt.
// It undercounts if calls give back and take the same between the look and the swap of a Cancel:
// the word is then unchanged. The same holds for a Reset. Otherwise it is exact. Beyond two
// bucketfuls an error makes no difference.
func spreads(ops []*Op) map[int64]spread {
	made := map[int64]*Op{}
	for _, op := range ops {
		if op.ID != 0 && (op.Verb == Reserve || op.Verb == Grab) {
			made[op.ID] = op
		}
	}
	all := map[int64]spread{}
	for _, op := range ops {
		if op.Verb != Cancel && op.Verb != Release || made[op.ID] == nil {
			continue
		}
		var s spread
		for _, other := range ops {
			if other == op || other.Return < made[op.ID].Call || other.Call > op.Return {
				continue
			}
			switch other.Verb {
			case Refund, Cancel, Release:
				s.more = enough
				if other.Return >= op.Call {
					s.less = enough
				}
			case Reset:
				s.reset = true
				if other.Return >= op.Call {
					s.raced, s.more = true, enough
				}
			}
		}
		all[op.ID] = s
	}
	return all
}

// enough exceeds twice the limit of every scenario, in units.
const enough = 16
