package httplimit

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/ral-limiter/ral/engine"
)

// acquire takes n units, and stands in the key's line for them if others do, or there is no
// room.
func (l *bound[K]) acquire(r *http.Request, v *ruling, key K, n int64, upTo time.Duration) engine.Reservation[K] {
	reserved, err := l.Limiter.Acquire(r.Context(), key, n, upTo)
	v.Waited = reserved.Waited
	switch {
	case err == nil && v.Waited > 0:
		v.Decision = l.Limiter.Peek(key) // it may have taken ahead of its turn
		return reserved
	case errors.Is(err, engine.ErrCancelled):
		v.Reason = Cancelled
	case errors.Is(err, engine.ErrClosed):
		reserved = l.Limiter.Reserve(key, n, 0) // as Config.WhenUnavailable says
	}
	v.Decision = reserved.Decision
	return reserved
}

// takeTurn waits for a turn that was promised, or notes under Shadow that it would. It
// returns false if the request's context ends before.
func takeTurn(r *http.Request, v *ruling, turn time.Duration, shadow bool) bool {
	switch {
	case turn <= 0:
		return true
	case shadow:
		v.Waited = turn
		return true
	}
	began := time.Now()
	reached := sleep(r.Context(), turn)
	if v.Waited = time.Since(began); !reached {
		v.Reason = Cancelled
	}
	return reached
}

// sleep waits as long, unless the context ends.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
