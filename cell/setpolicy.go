package cell

import (
	"sync"
	"time"

	"github.com/ral-limiter/ral/internal/core/seam"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/table"
)

// SetPolicy retries after changePause, doubling up to maxChangePause, until the previous change is
// over.
const (
	changePause    = time.Millisecond
	maxChangePause = 64 * time.Millisecond
	// maxLinePause is about the longest stop of lines for a change.
	maxLinePause = 100 * time.Millisecond
)

// SetPolicy replaces the cell's own policy for all keys, and returns once the new policy holds. The
// same policy changes nothing. The policy must not be nil. The error is a *policy.FieldError,
// ErrClosed or ErrUnavailable; the old policy holds then.
func (c *Cell[K]) SetPolicy(limit policy.Policy) error {
	bad := func(value any, want string) error {
		return &policy.FieldError{Of: "SetPolicy", Field: "policy", Value: value, Want: want}
	}
	if c.policyFor != nil {
		return bad(limit, "none: engine.PolicyFor chooses this engine's limits, so let that return another")
	}
	if !c.closed.Load() && shape.Same(limit, c.Limit()) {
		return nil
	}
	for pause := changePause; ; pause = min(2*pause, maxChangePause) {
		if terms := c.view.Terms(); !terms.CanReplace(limit) {
			return bad(limit, "one of the family of "+terms.Policy.String())
		}
		change := table.NewChange(limit, c.now())
		if c.change(change) == table.ChangeMade {
			return nil
		}
		if c.closed.Load() || !c.writing() {
			switch {
			case c.closed.Load():
				return ErrClosed
			case !c.view.Terms().MadeBy(change):
				return ErrUnavailable
			}
			// The change was made by a writer that died before it could report that.
			return nil
		}
		c.seam.Sleep("sleep", pause)
	}
}

// change sends the writer a change, and waits for the result. Calls in line then get turns under
// the new policy. If the writer does not answer for long, the lines go on under the old policy.
func (c *Cell[K]) change(change *table.Change) table.ChangeResult {
	resume := sync.OnceFunc(c.lines.Pause())
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
		if time.Since(sent) > maxLinePause {
			resume()
		}
	}
}

// answer waits a little for the result of a change. over is false if none came.
func (c *Cell[K]) answer(change *table.Change) (result table.ChangeResult, over bool) {
	result, event := seam.Receive(c.seam, "change: asked", changePause, change.Answer(), nil, c.done)
	if event != seam.Received {
		result = table.ChangeLater
	}
	return result, event != seam.Elapsed
}
