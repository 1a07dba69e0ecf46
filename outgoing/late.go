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
	// At is the instant of the key's next turn, and In the time until then. Calls already in line get their
	// turns first.
	At time.Time
	In time.Duration

	// Call is the number, from 1, of the key's call whose answer set the turn. Answered is the time of that
	// answer, and Field its header field. Call is 0 if no answer set the turn. Field may be empty.
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

// late returns the error of a call that got no turn, and calls Config.OnTurn if its turn would come too late.
func (p *part[K]) late(ctx context.Context, err error) error {
	line, state := p.line, p.state
	if !errors.Is(err, engine.ErrDeadline) {
		return fmt.Errorf("outgoing: %w", err)
	}
	fails := state.failsFor(line.keys.now())
	blocked := max(line.engine.Blocked(state.key), fails) > 0
	state.mu.Lock()
	origin := state.mu.pacedBy
	origin.field = cmp.Or(origin.limitField, origin.field)
	if blocked {
		origin = state.mu.heldBy
	}
	state.mu.Unlock()
	decision := line.engine.Peek(state.key, p.burstUnits)
	decision.Allowed, decision.RetryAfter = false, max(decision.RetryAfter, fails)
	p.tell(ctx, decision)
	return &TurnError{state.key, time.Now().Add(decision.RetryAfter), decision.RetryAfter, origin.call, origin.came, origin.field, err}
}
