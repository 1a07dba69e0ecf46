package httplimit

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/ral-limiter/ral/engine"
)

// acquire takes n units. It waits in the key's line if there is one, or no room.
func (l *checkedLimit[K]) acquire(r *http.Request, v *result, key K, n int64, upTo time.Duration) engine.Reservation[K] {
	reserved, err := l.Limiter.Acquire(r.Context(), key, n, upTo)
	v.Waited = reserved.Waited
	switch {
	case err == nil && v.Waited > 0:
		l.describe(v, key, &reserved)
		return reserved
	case errors.Is(err, engine.ErrCancelled):
		v.Reason = Cancelled
	case errors.Is(err, engine.ErrClosed):
		reserved = l.Limiter.Reserve(key, n, 0) // answered by Config.WhenUnavailable
	}
	v.Decision = reserved.Decision
	return reserved
}

// describe notes the state of the key after a wait. The units may have been taken ahead of
// the turn, and the limit may have changed. If engine.PolicyFor panics they are given back.
func (l *checkedLimit[K]) describe(v *result, key K, reserved *engine.Reservation[K]) {
	described := false
	defer func() {
		if !described {
			reserved.Cancel()
		}
	}()
	if d := l.Limiter.Peek(key); d.Allowed {
		v.Decision, v.quota = d, quotaOf(l.Limiter.LimitFor(key))
	} else {
		v.Decision = reserved.Decision // the limit is of another family now, but the units are taken
	}
	described = true
}

// awaitTurn waits for a turn that was promised; under Shadow it only notes the delay. It
// reports whether the turn came before the request's context ended.
func awaitTurn(r *http.Request, v *result, turn time.Duration, shadow bool) bool {
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

// sleep waits for d, and reports whether it passed before the context ended.
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
