package outgoing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/outgoing/internal/answer"
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

// origin is the answer behind a wait.
type origin struct {
	call  uint64
	field string
	at    time.Time
}

func (t *part[K]) late(ctx context.Context, err error) error {
	l, key, s := t.line, t.key, t.state
	if !errors.Is(err, engine.ErrDeadline) {
		return fmt.Errorf("outgoing: %w", err)
	}
	overlong := l.overlongLeft(s)
	blocked := max(l.engine.Blocked(key), overlong)
	s.mu.Lock()
	from := s.mu.pacedBy
	if blocked > 0 {
		from = s.mu.heldBy
	}
	s.mu.Unlock()
	d := l.engine.Peek(key, t.fits)
	d.Allowed, d.RetryAfter = false, max(d.RetryAfter, overlong)
	if l.config.OnTurn != nil {
		l.config.OnTurn(ctx, l.config.Name, d)
	}
	in := d.RetryAfter
	return &TurnError{key, time.Now().Add(in), in, from.call, from.at, from.field, err}
}

// believe drops a reset that has passed or is too far ahead.
func (l *Line[K]) believe(a *Answer) {
	// Servers round a reset up to seconds, and a sliding window resets within two.
	most := max(l.config.MaxBackoff, 2*min(a.Window, answer.MaxTime)) + time.Second
	if !answer.IsPast(a) && a.Reset <= most {
		return
	}
	if l.counters.badResets.Add(1) == 1 {
		l.config.Logger.Warn("outgoing: ignored a reset that is past or too far ahead; later ones are only counted",
			slog.String("line", l.config.Name), slog.String("field", a.Field), slog.Duration("reset", a.Reset), slog.Duration("most", most))
	}
	a.Reset = 0
}
