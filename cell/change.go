package cell

import (
	"runtime"
	"sync"
	"time"

	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/table"
)

// changePause is how long SetPolicy waits before it asks again, at first and at the
// most. From collectPause on it has the garbage collector tell that nobody holds the
// policy before any more.
const (
	changePause     = time.Millisecond
	collectPause    = 8 * time.Millisecond
	mostChangePause = 256 * time.Millisecond
	// pauseMost is how long lines stand still for a change, about.
	pauseMost = 100 * time.Millisecond
)

// SetPolicy puts another policy in place of the cell's own, for all keys, from the
// next call on. The two must be of one family, as their constructors tell. Nothing
// is forgiven: what a key has used counts under the new policy too, up to as much as
// it can count; a limit that is lowered and raised again has forgotten the rest. Nobody
// is locked out for longer than the new policy would lock him out, but for turns
// promised and debts left before, which are kept as the time that they are. Windows of
// another length count from the change: who changes the length more often than that
// keeps a busy key full. Calls of Wait in line get turns under the new policy.
//
// It returns when the new policy holds. While the writer translates all keys, about
// a second for a million of them, callers translate those that they come to; a
// full table then makes no room for new keys, which are answered as for an
// unavailable table, and another SetPolicy waits. It also waits until no call is
// under way that began before the last change was over, which the garbage collector
// has to find out: if it does not run by itself within some milliseconds, SetPolicy
// calls runtime.GC, up to four times a second for as long as it takes.
//
// The error is a *policy.FieldError if the policy is nil or of another family, or
// if the engine's option PolicyFor chooses the limits; otherwise ErrClosed or
// ErrUnavailable. The old policy holds then.
func (c *Cell[K]) SetPolicy(p policy.Policy) error {
	bad := func(value any, want string) error {
		return &policy.FieldError{Of: "SetPolicy", Field: "policy", Value: value, Want: want}
	}
	if !policy.Given(p) {
		return bad("nil", "a policy, such as policy.Funnel returns")
	}
	if c.policyFor != nil {
		return bad(p, "none: engine.PolicyFor chooses this engine's limits, so let that return another")
	}
	for pause := changePause; ; pause = min(2*pause, mostChangePause) {
		if terms := c.view.Terms(); !terms.CanReplace(p) {
			return bad(p, "one of the family of "+terms.Policy.String())
		}
		change := table.NewChange(p, c.now())
		switch result := c.change(change); {
		case result == table.ChangeMade:
			return nil
		case result == table.ChangeHeld && pause >= collectPause && c.seam == nil:
			runtime.GC()
		}
		if c.closed.Load() || !c.writing() {
			switch {
			case c.closed.Load():
				return ErrClosed
			case !c.view.Terms().MadeBy(change):
				return ErrUnavailable
			}
			return nil // made by a writer that died before it could say so
		}
		c.sleep(pause)
	}
}

// change asks the writer for a change, and waits for what comes of it. The turns of
// those who wait in line are theirs under the new policy then. Should the writer not
// answer for long, the lines go on under the old one.
func (c *Cell[K]) change(change *table.Change) table.ChangeResult {
	resume := sync.OnceFunc(c.lines.pause(c))
	defer resume()
	if c.queue.Send(table.ChangeCommand[K](change), c.openTimeout) != nil {
		return table.ChangeLater
	}
	for sent := time.Now(); ; {
		if result, over := c.answer(change); over {
			return result
		}
		if !c.writing() {
			return table.ChangeLater
		}
		if time.Since(sent) > pauseMost {
			resume()
		}
	}
}

// answer waits a little for what comes of a change. over is false if nothing did.
func (c *Cell[K]) answer(change *table.Change) (result table.ChangeResult, over bool) {
	if c.seam != nil {
		c.seam.Await("change: asked", changePause, func() bool { return len(change.Answer()) > 0 || c.closed.Load() })
		if len(change.Answer()) == 0 {
			return table.ChangeLater, c.closed.Load()
		}
		return <-change.Answer(), true
	}
	select {
	case result = <-change.Answer():
		return result, true
	case <-c.done:
		return table.ChangeLater, true
	case <-time.After(changePause):
		return table.ChangeLater, false
	}
}
