package cell

import (
	"github.com/ral-limiter/ral/internal/core/decide"
	"github.com/ral-limiter/ral/internal/core/waitline"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/table"
)

// startSwitch begins a change, and returns the function that ends it. The caller holds switches.
func (c *Cell[K]) startSwitch(key K) (end func()) {
	s := &switching{over: make(chan struct{})}
	s.hash, _ = c.hash(key)
	c.switched.Store(s)
	return func() {
		c.switched.Store(new(switching))
		close(s.over)
	}
}

// ChangeLimit translates the key's word when its limit changes; nil means the cell's own. It keeps
// the used units or, if share is true, their share of the limit. A key without an entry needs no
// translation. The error is a *policy.FieldError or ErrClosed; nothing has changed then.
func (c *Cell[K]) ChangeLimit(key K, from, to policy.Policy, share bool) error {
	return c.SwitchLimit(key, from, to, share, nil)
}

// SwitchLimit is ChangeLimit, in one step with publish, which makes PolicyFor choose the limit to.
// publish must not call the cell. With a nil publish, SwitchLimit is ChangeLimit.
func (c *Cell[K]) SwitchLimit(key K, from, to policy.Policy, share bool, publish func()) error {
	if err := related(c.view.Terms(), from, to); err != nil {
		return err
	}
	if c.closed.Load() {
		return ErrClosed
	}
	if publish != nil {
		c.switches.Lock()
		defer c.switches.Unlock()
	}
	var err error
	c.lines.Change(key, func() {
		if publish != nil {
			defer c.startSwitch(key)()
		}
		if err = c.changeLimit(key, from, to, share, publish != nil); err == nil && publish != nil {
			publish()
		}
	}, func(call waitline.Call[standing]) {
		call.(*waiter[K]).choice = c.orChosen(nil, key)
	})
	return err
}

func (c *Cell[K]) changeLimit(key K, from, to policy.Policy, share, always bool) error {
	for {
		entry := c.known(key)
		if entry == nil && c.closed.Load() {
			// The key may have been saved as it was.
			return ErrClosed
		}
		if entry == nil {
			return nil
		}
		if alive, err := c.carry(entry, from, to, share, always); alive {
			return err
		}
	}
}

// carry translates an entry's word. alive is false if the entry is dead. Since it may lower the
// word, it holds the return lock. A take under way makes the swap fail, or fails itself and decides
// again by the translated word. always also replaces the word of an unused key that the translation
// leaves unchanged, so that a take under the earlier limit fails to swap.
func (c *Cell[K]) carry(entry *table.Entry[K], from, to policy.Policy, share, always bool) (alive bool, err error) {
	c.lockReturn(entry)
	defer entry.UnlockReturn()
	for {
		word, terms := c.view.Read(entry)
		state, alive := terms.State(word)
		if !alive || state == 0 && !always {
			return alive, nil
		}
		next, err := c.carried(terms, state, from, to, share)
		if err == nil && next == state && always && terms.Occupier == nil {
			next = unusedBeside(orOwn(to, terms), state, c.now())
		}
		if err != nil || next == state {
			return true, err
		}
		// Reservations made before this change are of another word, so they give nothing back.
		entry.AddReturned(resetUnits)
		c.seam.Step("limit: translated")
		done := entry.Advance(word, next|terms.EpochBit)
		if done {
			return true, nil
		}
	}
}

// unusedBeside returns a neighbour of state if both are states of an unused key, and otherwise
// state.
func unusedBeside(limit policy.Policy, state uint64, now policy.Instant) uint64 {
	next := state - 1
	if state < 2 {
		next = state + 1
	}
	if limit.FreshAt(state) > now || limit.FreshAt(next) > now {
		return state
	}
	return next
}

func (c *Cell[K]) carried(terms *table.Terms, state uint64, from, to policy.Policy, share bool) (next uint64, err error) {
	if err := related(terms, from, to); err != nil {
		// SetPolicy changed the cell's own limit meanwhile.
		return state, err
	}
	old, limit, now := orOwn(from, terms), orOwn(to, terms), c.now()
	next, ok := decide.Carry(old, state, limit, now, share)
	if !ok || next > policy.MaxWord {
		// A policy that breaks its contract must not break the table.
		return state, unrelated("to", limit, terms)
	}
	return next, nil
}

// related returns an error if the terms' keys cannot change from the first limit to the second.
func related(terms *table.Terms, from, to policy.Policy) error {
	for _, limit := range []struct {
		field string
		p     policy.Policy
	}{{"from", orOwn(from, terms)}, {"to", orOwn(to, terms)}} {
		if !terms.ReadsWordsOf(limit.p) {
			return unrelated(limit.field, limit.p, terms)
		}
	}
	limit := orOwn(to, terms)
	if _, ok := decide.Related(orOwn(from, terms), limit); !ok {
		return unrelated("to", limit, terms)
	}
	return nil
}

func unrelated(field string, limit policy.Policy, terms *table.Terms) error {
	return &policy.FieldError{
		Of: "ChangeLimit", Field: field, Value: limit, Want: "a policy.Relative that reads the words of " + terms.Policy.String(),
	}
}
