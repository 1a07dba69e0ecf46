package linear

import (
	"fmt"
	"hash/maphash"
	"slices"

	"github.com/anishathalye/porcupine"

	"github.com/ral-limiter/ral/policy"
)

// state holds all that matters of a key. It is immutable.
type state struct {
	word   uint64
	undone uint64 // units given back: see table.Entry.AddReturned
	grace  int    // liberties that may still be taken: see Liberty
	held   []held // reservations that a later call gives back
	// log has the latest reservations. It is valid while the word is as the last of them left it,
	// perhaps again, and only logged reservations were given back since: see package underway.
	log  []logged
	mark mark
}

type logged struct {
	id      int64
	before  uint64
	takenAt policy.Instant
	n       int64
}

// mark is the word and the count of returned units for which a log is valid.
type mark struct{ word, undone uint64 }

// held is a reservation; n is 0 if it took nothing.
type held struct {
	id            int64
	before, after uint64
	takenAt       policy.Instant
	n             int64
	undone        uint64
	// stale: the key may have been forgotten since, and nothing be given back.
	stale bool
}

// wiped is the least number of units that a Reset counts as given back.
const wiped = 1 << 33

// model is the sequential specification of a key.
type model struct {
	s *Scenario
	// spread bounds the miscount of returned units by reservation ID: see spreads.
	spread map[int64]spread
}

type spread struct {
	more, less int64
	reset      bool // the key may count as reset
	raced      bool // a Reset may go unnoticed: see spreads
}

// spec returns the model in porcupine's form, for a history with at most grace liberties.
func (m *model) spec(grace int) porcupine.Model {
	if m.s.InUse() {
		return specOf(&slots{grace: grace}, m.stepSlots)
	}
	return specOf(&state{grace: grace}, m.step)
}

// possible is a possible state of a key, of type S. It is an interface because rates and units in use have
// different states.
type possible[S any] interface {
	alike(other S) bool
	liberties() int
	hash(seed maphash.Seed) uint64
}

// specOf returns a model whose states are sets of possible states.
func specOf[S possible[S]](first S, step func(S, *Op) []S) porcupine.Model {
	seed := maphash.MakeSeed()
	return porcupine.Model{
		Init: func() any { return []S{first} },
		Step: func(from, in, _ any) (bool, any) {
			var next []S
			for _, s := range from.([]S) {
				for _, n := range step(s, in.(*Op)) {
					next = include(next, n)
				}
			}
			return len(next) > 0, next
		},
		Equal: func(a, b any) bool {
			x, y := a.([]S), b.([]S)
			return len(x) == len(y) && !slices.ContainsFunc(x, func(s S) bool {
				return !slices.ContainsFunc(y, func(o S) bool { return s.liberties() == o.liberties() && s.alike(o) })
			})
		},
		Hash: func(a any) (h uint64) {
			for _, s := range a.([]S) {
				h ^= s.hash(seed)
			}
			return h
		},
		DescribeState: func(a any) (text string) {
			for _, s := range a.([]S) {
				text += fmt.Sprintf("%+v ", s)
			}
			return text
		},
		DescribeOperation: func(in, _ any) string { return in.(*Op).String() },
	}
}

func (s *state) liberties() int { return s.grace }

func (s *state) hash(seed maphash.Seed) uint64 { return maphash.Comparable(seed, s.word) }

// include adds a state to a set of different ones. Of two with different liberties left,
// the larger number can do all that the smaller can.
func include[S possible[S]](all []S, n S) []S {
	for i, s := range all {
		if s.alike(n) {
			if n.liberties() > s.liberties() {
				all[i] = n
			}
			return all
		}
	}
	return append(all, n)
}

func (s *state) alike(state *state) bool {
	return s == state || s.word == state.word && s.undone == state.undone && s.mark == state.mark &&
		slices.Equal(s.held, state.held) && slices.Equal(s.log, state.log)
}

// step returns the states that a call may leave behind, given its answer.
func (m *model) step(state *state, op *Op) []*state {
	if m.forgettable(state, op) {
		state = state.aged()
	}
	next := m.recorded(state, op)
	if state.grace == 0 {
		return next
	}
	switch m.s.Liberty() {
	case Forgives:
		if state.word != 0 {
			next = append(next, m.recorded(state.forgiven(), op)...)
		}
	case Refuses, Passes:
		if m.forgettable(state, op) {
			next = append(next, m.unrecorded(state, op)...)
		}
	}
	return next
}

// forgettable reports whether a key that owed nothing may have left before the call was over.
func (m *model) forgettable(state *state, op *Op) bool {
	return state.word == 0 || m.s.Policy.FreshAt(state.word)+policy.Instant(m.s.Idle) <= op.To
}

// aged returns the state with its reservations stale: their entry may have left.
func (s *state) aged() *state {
	if !slices.ContainsFunc(s.held, func(held held) bool { return held.n > 0 && !held.stale }) {
		return s
	}
	state := *s
	state.held = slices.Clone(s.held)
	for i := range state.held {
		state.held[i].stale = state.held[i].n > 0
	}
	return &state
}

// forgiven returns the state after the key was given up. Its reservations cannot be given back.
func (s *state) forgiven() *state {
	f := &state{grace: s.grace - 1, held: slices.Clone(s.held)}
	for i := range f.held {
		f.held[i] = held{id: f.held[i].id}
	}
	return f
}

func (s *state) with(word uint64) *state {
	if word == s.word {
		return s
	}
	n := *s
	n.word = word
	return &n
}

func (s *state) holding(h held) *state {
	if h.id == 0 {
		return s
	}
	state := *s
	state.held = append(slices.Clone(s.held), h)
	// In a fixed order, so that the order of the calls does not matter.
	slices.SortFunc(state.held, func(a, b held) int { return int(a.id - b.id) })
	return &state
}

// without drops a reservation. Only differences between counts of returned units matter.
func (s *state) without(i int) *state {
	state := *s
	state.held = slices.Delete(slices.Clone(s.held), i, i+1)
	least := state.undone
	for _, held := range state.held {
		if held.n > 0 {
			least = min(least, held.undone)
		}
	}
	state.undone -= least
	state.mark.undone -= least
	for i := range state.held {
		if state.held[i].n > 0 {
			state.held[i].undone -= least
		}
	}
	return state.forgetting()
}

// forgetting drops reservations before the first that a later call gives back, except the last of
// them: its instant may count.
func (s *state) forgetting() *state {
	returns := func(logged logged) bool {
		return slices.ContainsFunc(s.held, func(held held) bool { return held.id == logged.id })
	}
	for len(s.log) > 1 && !returns(s.log[0]) && !returns(s.log[1]) {
		s.log = s.log[1:]
	}
	return s
}

// logging logs a reservation that changed the word of s, in state, if takes under p are logged.
func (s *state) logging(state *state, p policy.Policy, op *Op, now policy.Instant, decision policy.Decision) *state {
	logging := *state
	if _, exact := p.(policy.Restorer); exact || decision.Wait > 0 || op.N == 0 {
		return logging.forgetting()
	}
	if s.mark != (mark{s.word, s.undone}) {
		logging.log = nil
	}
	if last := len(logging.log) - 1; last >= 0 {
		now = max(now, logging.log[last].takenAt)
	}
	logging.log = append(slices.Clone(logging.log), logged{op.ID, s.word, now, op.N})
	logging.mark = mark{state.word, state.undone}
	return logging.forgetting()
}

// unlogged undoes a reservation of the log as if never made. ok is false if it is not in the log.
func (s *state) unlogged(limit policy.Policy, held held) (n *state, ok bool) {
	i := slices.IndexFunc(s.log, func(logged logged) bool { return logged.id == held.id })
	if i < 0 || s.mark != (mark{s.word, s.undone}) {
		return nil, false
	}
	log := slices.Clone(s.log)
	word := log[i].before
	for j := i + 1; j < len(log); j++ {
		log[j].before = word
		if word, ok = log[j].again(limit, word); !ok {
			return nil, false
		}
	}
	after := *s
	after.word, after.log = word, slices.Delete(log, i, i+1)
	if s.word != held.after || s.undone != held.undone {
		after.undone += uint64(held.n)
	}
	after.mark = mark{after.word, after.undone}
	return &after, true
}

// again repeats a reservation, or a charge, from a word.
func (l logged) again(limit policy.Policy, word uint64) (next uint64, ok bool) {
	if l.n < 0 {
		return limit.(policy.Refunder).Refund(word, l.takenAt, l.n), true
	}
	next, decision := limit.Take(word, l.takenAt, l.n, 0)
	return next, decision.Allowed && decision.Wait == 0
}

// corrected returns s with a lower word, which its log leaves if the units that came back were in
// the word before the log. ok is false if there is no such word.
func (s *state) corrected(limit policy.Policy, word uint64) (state *state, ok bool) {
	state = s.with(word)
	if len(s.log) == 0 || s.mark != (mark{s.word, s.undone}) {
		return state, true
	}
	log := slices.Clone(s.log)
	before := log[0].before - (s.word - word)
	for i := range log {
		log[i].before = before
		if before, ok = log[i].again(limit, before); !ok {
			return nil, false
		}
	}
	if before != word {
		return nil, false
	}
	corrected := *state
	corrected.log = log
	return &corrected, true
}

// recorded returns the states that follow if the key's word answers the call.
func (m *model) recorded(s *state, op *Op) (next []*state) {
	limit := m.s.Policy
	add := func(n *state) { next = append(next, n) }
	if op.Verb == Grab {
		add(s.holding(held{id: op.ID})) // it came to nothing
	}
	for now := op.From; now <= op.To; now += policy.Instant(m.s.Step) {
		switch op.Verb {
		case Choke:
			if word, decision := limit.Take(s.word, now, 1, 0); decision.Allowed == op.Allowed {
				add(s.with(word))
			}
		case Take:
			if word, decision := limit.Take(s.word, now, op.N, 0); decision == op.Decision {
				add(s.with(word))
			}
		case Peek:
			if _, decision := limit.Take(s.word, now, 0, 0); decision == op.Decision {
				add(s)
			}
		case Refund:
			word := limit.(policy.Refunder).Refund(s.word, now, op.N)
			if _, decision := limit.Take(word, now, 0, 0); decision == op.Decision {
				n := s.with(word)
				if op.N > 0 && word != s.word {
					n.undone += uint64(op.N)
				}
				if op.N < 0 && len(s.log) > 0 && s.mark == (mark{s.word, s.undone}) {
					n = s.logging(n, limit, op, now, policy.Decision{})
				}
				add(n)
			}
		case Reserve:
			if word, decision := limit.Take(s.word, now, op.N, op.Patience); decision == op.Decision {
				if n := s.with(word); !decision.Allowed {
					add(n)
				} else {
					n = n.holding(held{id: op.ID, before: s.word, after: word, takenAt: now, n: op.N, undone: s.undone})
					add(s.logging(n, limit, op, now, decision))
				}
			}
		case Cancel, Release:
			m.cancelled(s, op, now, add)
		case Reset:
			if (limit.FreshAt(s.word) > now) != op.Allowed {
				break
			}
			n := s.with(0)
			if n != s {
				n.undone += 2 * wiped
			}
			add(n)
		case All:
			if word, decision := limit.Take(s.word, now, op.N, 0); decision == op.Decision && decision.Wait == 0 {
				if n := s.with(word); decision.Allowed {
					add(s.logging(n, limit, op, now, decision))
				} else {
					add(n)
				}
			}
		case Glance:
			if m.glance(s.word, now, op) {
				add(s)
			}
		case Grab:
			if word, decision := limit.Take(s.word, now, op.N, 0); decision.Allowed && decision.Wait == 0 {
				n := s.with(word).holding(held{id: op.ID, before: s.word, after: word, takenAt: now, n: op.N, undone: s.undone})
				add(s.logging(n, limit, op, now, decision))
			}
		}
	}
	return next
}

// cancelled adds the states after a reservation is given back at now.
func (m *model) cancelled(state *state, op *Op, now policy.Instant, add func(*state)) {
	i := slices.IndexFunc(state.held, func(held held) bool { return held.id == op.ID })
	if i < 0 {
		return // not made yet
	}
	held := state.held[i]
	since := state.undone - held.undone
	if n, ok := state.unlogged(m.s.Policy, held); ok && held.n > 0 {
		add(n.without(i))
	}
	state = state.without(i)
	spread := m.spread[op.ID]
	if held.n == 0 || held.stale || spread.reset {
		if add(state); held.n == 0 {
			return
		}
	}
	if since >= wiped {
		add(state)
		if !spread.raced {
			return
		}
		since = 0
	}
	for undone := max(int64(since)-spread.less, 0); undone <= int64(since)+spread.more; undone++ {
		if state.word == held.after && undone == 0 {
			before := held.before
			if restorer, ok := m.s.Policy.(policy.Restorer); ok {
				before = restorer.Restore(state.word, before, now)
			}
			add(state.with(before))
			continue
		}
		word := m.s.Policy.(policy.Refunder).Cancel(state.word, held.after, held.takenAt, now, held.n, undone)
		n, ok := state.corrected(m.s.Policy, word)
		if !ok {
			n = state
		}
		if n != state && n.word != state.word {
			live := state.mark == mark{state.word, state.undone}
			if n.undone += uint64(held.n); live {
				n.mark = mark{n.word, n.undone}
			}
		}
		add(n)
	}
}

// glance reports whether a key is as a refused TakeAll says, which looks twice at other keys.
func (m *model) glance(word uint64, now policy.Instant, op *Op) bool {
	_, decision := m.s.Policy.Take(word, now, 0, 0)
	if op.Decision.Allowed {
		return decision == op.Decision
	}
	_, take := m.s.Policy.Take(word, now, op.N, 0)
	if take.Allowed && take.Wait == 0 {
		return false
	}
	decision.Allowed, decision.RetryAfter = false, take.RetryAfter
	return m.s.glanced(decision) == m.s.glanced(op.Decision)
}

// unrecorded returns the states after an answer without a record from a full table.
func (m *model) unrecorded(s *state, op *Op) (next []*state) {
	n := *s
	n.grace--
	units := op.N
	switch op.Verb {
	case Choke:
		units = 1
	case Take, Reserve, All, Glance:
	default:
		return nil // they open no key
	}
	for now := op.From; now <= op.To; now += policy.Instant(m.s.Step) {
		_, decision := m.s.Policy.Take(0, now, units, op.Patience)
		if !decision.Allowed {
			continue // which needs no record
		}
		if m.s.Liberty() == Refuses {
			decision = policy.Decision{Limit: decision.Limit, RetryAfter: m.s.Idle}
		}
		got := op.Decision
		if op.Verb == Choke {
			decision, got = policy.Decision{Allowed: decision.Allowed}, policy.Decision{Allowed: op.Allowed}
		}
		if decision == got {
			return []*state{n.holding(held{id: op.ID})}
		}
	}
	return nil
}

// stepSlots returns the states that a call may leave behind, given its answer.
func (m *model) stepSlots(s *slots, op *Op) (next []*slots) {
	for now := op.From; now <= op.To; now += policy.Instant(m.s.Step) {
		i, n := s.asOf(m.s, now), op.N
		switch op.Verb {
		case Choke:
			if after, decision := i.take(1, 0); decision.Allowed == op.Allowed {
				next = append(next, after)
			}
		case Take, Peek, Reserve:
			if after, decision := i.take(n, op.ID); decision == op.Decision {
				next = append(next, after)
			}
		case Cancel:
			after, _ := s.without(op.ID)
			next = append(next, after)
		case Extend:
			rest, n := i.counting().without(op.ID)
			switch {
			case (n > 0) != op.Allowed:
			case n > 0:
				next = append(next, rest.asOf(m.s, now).with(unit{i.part, op.ID, n}))
			default:
				next = append(next, s)
			}
		case Reset:
			if _, decision := i.take(0, 0); (decision.ResetAfter > 0) == op.Allowed {
				next = append(next, &slots{number: i.part, grace: s.grace})
				if !op.Allowed {
					next = append(next, s) // the key may be unknown
				}
			}
		}
	}
	// A key in use is never given up, so only a key without units is answered as an unknown key.
	if s.grace > 0 && len(s.asOf(m.s, op.To).units) == 0 {
		next = append(next, m.unrecordedSlots(s, op)...)
	}
	return next
}

// unrecordedSlots returns the states after an answer without a record from a full table.
func (m *model) unrecordedSlots(s *slots, op *Op) []*slots {
	if op.Verb != Choke && op.Verb != Take && op.Verb != Reserve {
		return nil // they open no key
	}
	after := *s
	after.grace--
	for now := op.From; now <= op.To; now += policy.Instant(m.s.Step) {
		_, decision := new(slots).asOf(m.s, now).take(max(op.N, 1), 0)
		switch {
		case !decision.Allowed:
			continue // which needs no record
		case m.s.Liberty() == Refuses:
			decision = policy.Decision{Limit: decision.Limit, RetryAfter: m.s.Idle}
		}
		if decision == op.Decision || op.Verb == Choke && decision.Allowed == op.Allowed {
			return []*slots{&after}
		}
	}
	return nil
}
