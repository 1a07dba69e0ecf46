package linear

import (
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// Verdict is what came of checking a history.
type Verdict struct {
	// Illegal has the keys whose calls nothing explains, Undecided those for which
	// that could not be told in time.
	Illegal, Undecided []int
	// Liberties is the fewest liberties that explain all the others.
	Liberties uint64
}

// most bounds how many liberties are tried to explain one key's calls.
const most = 256

// Check checks a history, all keys at once, of an engine that says it took so many
// liberties. limit is how long it may take for
// one key.
func Check(s *Scenario, history []Op, taken uint64, limit time.Duration) Verdict {
	byKey := map[int][]*Op{}
	for i := range history {
		byKey[history[i].Key] = append(byKey[history[i].Key], &history[i])
	}
	keys := make(chan int)
	var v Verdict
	var mu sync.Mutex
	var checkers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		checkers.Go(func() {
			for key := range keys {
				result, liberties := checkKey(s, byKey[key], int(min(taken, most)), limit)
				mu.Lock()
				switch result {
				case porcupine.Ok:
					v.Liberties += uint64(liberties)
				case porcupine.Illegal:
					v.Illegal = append(v.Illegal, key)
				default:
					v.Undecided = append(v.Undecided, key)
				}
				mu.Unlock()
			}
		})
	}
	for key := range byKey {
		keys <- key
	}
	close(keys)
	checkers.Wait()
	slices.Sort(v.Illegal)
	slices.Sort(v.Undecided)
	return v
}

// checkKey checks the calls on one key, and returns the fewest liberties that explain
// them.
func checkKey(s *Scenario, ops []*Op, most int, limit time.Duration) (porcupine.CheckResult, int) {
	m := &model{s: s, spread: spreads(ops)}
	history := operations(ops)
	until := time.Now().Add(limit)
	for grace := plain(s, ops); ; grace++ {
		left := time.Until(until)
		if left <= 0 {
			return porcupine.Unknown, 0
		}
		result := porcupine.CheckOperationsTimeout(m.spec(grace), history, left)
		// With as many as there are calls more of them explain nothing.
		if result != porcupine.Illegal || grace >= min(most, len(ops)) {
			return result, grace
		}
	}
}

// plain counts the answers that no word gives: a refusal by a key that owes nothing, of
// no more than the limit.
func plain(s *Scenario, ops []*Op) (n int) {
	for _, op := range ops {
		d := op.Decision
		if s.Liberty() == Refuses && op.Verb != Choke && op.Verb != Reset && !d.Allowed && d.Limit > 0 &&
			d.ResetAfter == 0 && d.RetryAfter == s.Idle {
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

// spreads tells, for each reservation that is given back, by how much the units that
// others gave back in between may be misjudged. Those who give back count their units
// once for each time that they try, so that they may seem to be more. And somebody who
// gives back, and another who takes as much, can leave the word as it was between the
// look and the swap of a Cancel, which does not notice: so they may seem to be less.
// Where nobody gives back at that time, the number is known. More than a bucketful or
// two makes no difference any more.
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
			}
		}
		all[op.ID] = s
	}
	return all
}

// enough is how many units are more than two of any of the scenarios' limits.
const enough = 16
