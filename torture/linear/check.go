package linear

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"
)

// Verdict is what came of checking a history.
type Verdict struct {
	// Illegal has the keys whose calls nothing explains, Undecided those for which
	// that could not be told in time. The others are not looked at when there is one.
	Illegal, Undecided []int
	// Liberties is how many liberties explain all the others: the fewest, if any more
	// would be more than were taken.
	Liberties uint64
}

// most bounds how many liberties are tried to explain one key's calls.
const most = 256

// search is the search for an order of one key's calls.
type search struct {
	key     int
	m       *model
	history []porcupine.Operation
	result  porcupine.CheckResult
	// fewest and enough are how many liberties explain the calls: no fewer than the
	// one, if enough is found at all, and no more than the other.
	fewest, enough int
}

// Check checks a history, all keys at once, of an engine that says it took so many
// liberties. limit is how long it may take for one key.
func Check(s *Scenario, history []Op, taken uint64, limit time.Duration) Verdict {
	byKey := map[int][]*Op{}
	for i := range history {
		byKey[history[i].Key] = append(byKey[history[i].Key], &history[i])
	}
	var all []*search
	for key, ops := range byKey {
		all = append(all, &search{
			key: key, m: &model{s: s, spread: spreads(ops)}, history: operations(ops), fewest: plain(s, ops),
		})
	}
	next := make(chan *search)
	var checkers sync.WaitGroup
	var failed atomic.Bool
	for range runtime.GOMAXPROCS(0) {
		checkers.Go(func() {
			for k := range next {
				if failed.Load() {
					continue // one is enough to look at
				}
				k.run(int(min(taken, most)), limit)
				if k.result != porcupine.Ok {
					failed.Store(true)
				}
			}
		})
	}
	for _, k := range all {
		next <- k
	}
	close(next)
	checkers.Wait()

	var v Verdict
	for _, k := range all {
		if k.result == porcupine.Ok {
			v.Liberties += uint64(k.enough)
		}
	}
	for _, k := range all {
		// That many are enough. Where it is more than were taken, maybe fewer are.
		for k.result == porcupine.Ok && k.fewest < k.enough && v.Liberties > taken {
			v.Liberties -= uint64(k.enough)
			k.narrow(limit)
			v.Liberties += uint64(k.enough)
		}
		switch k.result {
		case porcupine.Illegal:
			v.Illegal = append(v.Illegal, k.key)
		case porcupine.Unknown:
			v.Undecided = append(v.Undecided, k.key)
		}
	}
	slices.Sort(v.Illegal)
	slices.Sort(v.Undecided)
	return v
}

// run looks whether the calls can be explained, by trying more and more liberties. It
// may take long to make sure that some are not enough, and no time to see that more are.
func (k *search) run(most int, limit time.Duration) {
	most = max(most, k.fewest)
	for tried := k.fewest; ; tried = min(max(2*tried, 1), most) {
		patience := limit
		if tried < most {
			patience = limit / 16
		}
		k.enough, k.result = tried, k.try(tried, patience)
		if k.result == porcupine.Illegal {
			k.fewest = tried + 1
		}
		if k.result == porcupine.Ok || tried == most {
			return
		}
	}
}

// narrow halves the range of how many liberties it takes.
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

// try looks for an order in which so many liberties are taken. Nearly always there is one
// without anything that hardly ever happens: so first it is looked for without that,
// which is fast.
func (k *search) try(liberties int, limit time.Duration) porcupine.CheckResult {
	simple := &model{s: k.m.s}
	usual := slices.DeleteFunc(slices.Clone(k.history), func(o porcupine.Operation) bool {
		verb := o.Input.(*Op).Verb
		return verb == Grab || verb == Release
	})
	if porcupine.CheckOperationsTimeout(simple.spec(liberties), usual, max(limit/4, 1)) == porcupine.Ok {
		return porcupine.Ok
	}
	return porcupine.CheckOperationsTimeout(k.m.spec(liberties), k.history, max(limit, 1))
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
// look and the swap of a Cancel, which does not notice: so they may seem to be less. The
// same goes for a Reset. Where nobody gives back at that time, the number is known. More
// than a bucketful or two makes no difference any more.
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

// enough is how many units are more than two of any of the scenarios' limits.
const enough = 16
