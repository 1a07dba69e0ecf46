package outgoing

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/ral-limiter/ral/engine"
)

// This file is about Config.InFlight: the calls of a key at once.

// countInFlight opens the engine that counts calls in flight.
func (l *Line[K]) countInFlight() (err error) {
	if c := &l.config; c.InFlight != nil {
		l.inFlight, err = engine.New[K](engine.Config{
			Name: c.Name + " in flight", Policy: c.InFlight, MaxWaiting: c.MaxWaiting, MaxWaitingTotal: c.MaxWaiting * 64,
			MaxKeys: c.MaxKeys, Idle: c.Idle, WhenUnavailable: engine.Refuse,
		})
	}
	return err
}

// hasGates reports whether calls meet several limits, one after the other.
func (l *Line[K]) hasGates() bool { return len(l.units) > 0 || l.inFlight != nil }

// enterFlight waits until fewer calls of the key are in flight than may be, and counts the call.
func (t *Turn[K]) enterFlight(ctx context.Context, patience time.Duration) (err error) {
	l := t.line
	if l.inFlight == nil {
		return nil
	}
	if t.inFlight, err = l.inFlight.Acquire(ctx, t.state.key, 1, max(patience, 0)); err == nil {
		return nil
	}
	if d := t.inFlight.Decision; l.config.OnTurn != nil && errors.Is(err, engine.ErrDeadline) {
		d.Wait = t.inFlight.Waited
		l.config.OnTurn(ctx, l.config.Name+" in flight", d)
	}
	t.inFlight = engine.Reservation[K]{}
	return fmt.Errorf("outgoing: %w", err)
}

// stayInFlight begins the call's longest time in flight with its turn. A call that waited for its turn for longer
// than that enters again.
func (t *Turn[K]) stayInFlight(ctx context.Context, patience time.Duration) error {
	if t.line.inFlight == nil || t.inFlight.Extend() {
		return nil
	}
	return t.enterFlight(ctx, patience)
}

// Release ends a call in flight by Config.InFlight, so that the next one may be sent. Call it once the answer is
// read to its end. The second time it does nothing. Obey does not release: a stream's first answer is not its end.
func (t *Turn[K]) Release() {
	t.inFlight.Release()
	t.inFlight = engine.Reservation[K]{}
}

// handOver returns a turn to a response's body, and leaves none.
func (t *Turn[K]) handOver() Turn[K] {
	given := *t
	*t = Turn[K]{}
	return given
}

// endWith has a response's body end the turn of its call. An empty body ends it at once.
func endWith[K comparable](resp *http.Response, names [][]string, turn *Turn[K]) {
	if resp.Body == nil || resp.Body == http.NoBody {
		turn.Release()
		return
	}
	body := newUsage(resp.Body, names, turn.handOver())
	if both, ok := resp.Body.(io.Writer); ok && resp.StatusCode == http.StatusSwitchingProtocols {
		resp.Body = &duplex[K]{body, both}
		return
	}
	resp.Body = body
}

// duplex is the connection of a response that switches protocols, which may also be written to.
type duplex[K comparable] struct {
	*usage[K]
	io.Writer
}
