package replay

import (
	"time"

	"github.com/ral-limiter/ral/cmd/ral/internal/accesslog"
	"github.com/ral-limiter/ral/cmd/ral/internal/traffic"
	"github.com/ral-limiter/ral/internal/core/decide"
	"github.com/ral-limiter/ral/policy"
)

// The names of scenarios.
const (
	// AsLogged asks the limits at the times of the log. It is the first scenario, and always there.
	AsLogged = "as logged"
	// AtLeast and AtMost are proven bounds.
	AtLeast = "at least"
	AtMost  = "at most"
	// SpreadEvenly is an assumption about the fractions of whole seconds.
	SpreadEvenly = "spread evenly"
	// AllComeAgain is the scenario of Config.Retries.
	AllComeAgain = "all come again"
	// ComparedWith has Config.Against.
	ComparedWith = "compared with"
)

// MaxTries bounds how often a refused request comes again.
const MaxTries = 16

// scenario is a set of limits, and an assumption about the requests that the log does not tell.
type scenario struct {
	index    int // among the scenarios
	limits   []policy.Policy
	first    int  // of its words
	isSpread bool // the requests of a second are spread over it
	retries  bool // refused requests come again
	isGauge  bool // the counts of keys are needs, and not refusals
	needs    Needs
	totals   Scenario

	changes int // of limits, by a record

	second []traffic.Request // whose arrivals are of one second, to be spread
	events traffic.Heap[event]
	grants map[int64]grant
}

// event is a request that comes, perhaps again, or the end of an admitted request.
type event struct {
	traffic.Request
	tries int

	isEnd bool
	limit int    // the limit that has units in use
	taken uint64 // its word after the take
}

// ask asks the limits about a request at an arrival, after the events until then.
func (s *scenario) ask(ledger *ledger, e event, arrival int64) (allowed bool) {
	s.settle(ledger, arrival)
	blocked := time.Duration(ledger.accounts[e.Key].blockedUntil - arrival)
	if blocked > 0 && s.isGauge {
		return false // it says nothing of the key's need
	}
	now, words := ledger.instant(arrival), s.words(ledger, e.Key)
	var next [maxLimits]uint64
	var wait, retry time.Duration
	var need int64
	binding := -1
	for i, limit := range s.limits {
		var decision policy.Decision
		next[i], decision = limit.Take(words[i], now, e.Cost, 0)
		if len(s.limits) > 1 && decision.Wait > 0 {
			decision.Allowed, decision.RetryAfter = false, decision.Wait // as engines decide on several limits: none may delay
		}
		wait, need = max(wait, decision.Wait), decision.Limit-decision.Remaining
		if !decision.Allowed && (binding < 0 || decision.RetryAfter > retry) {
			binding, retry = i, decision.RetryAfter
		}
	}
	t := &s.totals
	t.Requests++
	count := &ledger.countsOf(e.Key)[s.index]
	if s.isGauge {
		*count = max(*count, uint32(min(need, Beyond)))
	}
	if binding < 0 && blocked <= 0 {
		if e.Grant > 0 {
			s.hold(ledger, e, arrival, words, next)
		}
		copy(words, next[:])
		if wait > 0 {
			t.Delayed++
		}
		if e.tries > 0 {
			t.Late++
		}
		for i, limit := range s.limits {
			if _, ok := limit.(policy.Occupier); ok && e.Cost > 0 && e.Verb == accesslog.Request {
				s.await(ledger, arrival+int64(e.Duration), event{Request: e.Request, isEnd: true, limit: i, taken: next[i]})
			}
		}
		return true
	}
	t.Refused++
	t.RefusedUnits += e.Cost
	if blocked <= 0 {
		t.Bound[binding].Refused++
	}
	if s.isGauge {
		*count = Beyond
	} else {
		*count++
	}
	if s.retries {
		retry = max(retry, blocked)
		if e.tries++; retry == policy.Never || e.tries > MaxTries {
			t.GaveUp++
		} else {
			s.await(ledger, arrival+int64(retry), e)
		}
	}
	return false
}

// hold remembers the words of a take. Beyond a bound, its units do not come back.
func (s *scenario) hold(ledger *ledger, event event, arrival int64, words []uint64, next [maxLimits]uint64) {
	if len(s.grants) >= maxHeld {
		s.totals.Lost++
		return
	}
	// An engine that began anew uses the numbers of grants again.
	if before, ok := s.grants[event.Grant]; ok {
		ledger.keys.Unpin(before.key)
	}
	ledger.keys.Pin(event.Key)
	both := append(append(make([]uint64, 0, 2*len(words)), words...), next[:len(words)]...)
	account := &ledger.accounts[event.Key]
	s.grants[event.Grant] = grant{event.Key, event.Cost, ledger.instant(arrival), account.returned, account.resets, s.changes, both[:len(words)], both[len(words):]}
}

// end ends a grant, and returns its key and how many units come back: those that were not used.
func (s *scenario) end(ledger *ledger, request *traffic.Request) (key uint32, returned int64) {
	grant, ok := s.grants[request.Grant]
	if !ok {
		return request.Key, 0
	}
	delete(s.grants, request.Grant)
	ledger.keys.Unpin(grant.key)
	used, account := request.Cost, &ledger.accounts[grant.key]
	if request.Verb == accesslog.Release {
		used = grant.units
	}
	wasReset, hasChanged := grant.resets != account.resets, grant.changes != s.changes
	grant.end(s.limits, s.words(ledger, grant.key), ledger.instant(request.Arrival), used, account.returned-grant.returned, wasReset, hasChanged)
	if wasReset || hasChanged {
		return grant.key, 0
	}
	return grant.key, max(grant.units-used, 0)
}

// follow replaces the limits of that text for good, and reports whether there is one and the two are of a family.
func (s *scenario) follow(ledger *ledger, before string, limit policy.Policy, now policy.Instant) (followed bool) {
	for i, old := range s.limits {
		to, ok := decide.Related(old, limit)
		if !ok || s.isGauge || old.String() != before || limit.String() == before {
			continue
		}
		carry := func(word *uint64) {
			if *word != 0 {
				next, _ := to.Carry(old, *word, now)
				*word = min(next, policy.MaxWord)
			}
		}
		for j := s.first + i; j < len(ledger.words); j += ledger.stride {
			carry(&ledger.words[j])
		}
		for _, grant := range s.grants {
			if !to.Reads(old) {
				carry(&grant.after[i])
			}
		}
		s.limits[i], followed = limit, true
	}
	if followed {
		s.changes++
	}
	return followed
}

// await keeps an event until it is due. Memory is bounded: an event beyond the bound is lost and counted.
func (s *scenario) await(ledger *ledger, due int64, event event) {
	if s.events.Len() >= maxHeld {
		s.totals.Lost++
		return
	}
	ledger.keys.Pin(event.Key)
	s.events.Push(due, event)
}

// settle asks about the requests of a second that is over, and runs the events that are due.
func (s *scenario) settle(ledger *ledger, until int64) {
	const second = int64(time.Second)
	if held := s.second; len(held) > 0 && held[0].Arrival/second < until/second {
		s.second = nil
		begin := held[0].Arrival / second * second
		for i := range held {
			s.ask(ledger, event{Request: held[i]}, begin+second*int64(i)/int64(len(held)))
			ledger.keys.Unpin(held[i].Key)
		}
		s.second = held[:0]
	}
	for {
		due, ok := s.events.First()
		if !ok || due > until {
			return
		}
		event := s.events.Pop()
		ledger.keys.Unpin(event.Key)
		if !event.isEnd {
			s.ask(ledger, event, due)
			continue
		}
		words := s.words(ledger, event.Key)
		words[event.limit], _ = s.limits[event.limit].(policy.Occupier).Release(words[event.limit], event.taken, ledger.instant(due), event.Cost)
	}
}

// keep keeps a request until all requests of its second are known, to be spread over it.
func (s *scenario) keep(ledger *ledger, request *traffic.Request) {
	if len(s.second) >= maxHeld {
		s.totals.Lost++
		return
	}
	ledger.keys.Pin(request.Key)
	s.second = append(s.second, *request)
}

// words returns the words of a key under the scenario's limits.
func (s *scenario) words(ledger *ledger, key uint32) []uint64 {
	i := int(key)*ledger.stride + s.first
	return ledger.words[i : i+len(s.limits)]
}
