package outgoing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ral-limiter/ral/engine"
)

// TurnError is the error of a call whose turn would come too late. It wraps engine.ErrDeadline.
type TurnError struct {
	// Key is the call's key, also in the message: do not show it where it is secret.
	Key any
	// At is when the key's next turn comes, and In the time until then. Calls in line go first.
	At time.Time
	In time.Duration

	// Call is the number, from 1, of the key's call whose answer set the turn. Answered is when that
	// answer came, and Field its header field. Call is 0 without such an answer; Field may be empty.
	Call     uint64
	Answered time.Time
	Field    string

	// Err is the engine's error.
	Err error
}

// Error implements error.
func (e *TurnError) Error() string {
	why := "no answer set it"
	if e.Call > 0 {
		field := e.Field
		if field == "" {
			field = "the status"
		}
		why = fmt.Sprintf("by %s of the answer to call %d at %s", field, e.Call, e.Answered.Format(time.RFC3339))
	}
	return fmt.Sprintf("outgoing: %.200q: next turn at %s, in %v, %s: %v",
		fmt.Sprint(e.Key), e.At.Format(time.RFC3339), e.In, why, e.Err)
}

// Unwrap returns Err.
func (e *TurnError) Unwrap() error { return e.Err }

// late returns the error of a call that got no turn, and tells Config.OnTurn that its turn came too late.
func (p *part[K]) late(ctx context.Context, err error) error {
	l, s := p.line, p.state
	if !errors.Is(err, engine.ErrDeadline) {
		return fmt.Errorf("outgoing: %w", err)
	}
	fails := s.failsFor(l.keys.now())
	blocked := max(l.engine.Blocked(s.key), fails) > 0
	s.mu.Lock()
	by := s.mu.pacedBy
	by.field = cmp.Or(by.limitField, by.field)
	if blocked {
		by = s.mu.heldBy
	}
	s.mu.Unlock()
	d := l.engine.Peek(s.key, p.fits)
	d.Allowed, d.RetryAfter = false, max(d.RetryAfter, fails)
	p.tell(ctx, d)
	return &TurnError{s.key, time.Now().Add(d.RetryAfter), d.RetryAfter, by.call, by.came, by.field, err}
}
