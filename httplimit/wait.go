package httplimit

import (
	"context"
	"net/http"
	"time"

	"github.com/ral-limiter/ral/cell"
)

// takeTurn waits for a turn that a policy.Queue has promised, unless that is too late.
func (l *bound[K]) takeTurn(r *http.Request, v *ruling, key K, reserved *cell.Reservation[K], upTo time.Duration) {
	turn := v.Decision.Wait
	if upTo > 0 && turn > upTo {
		reserved.Cancel()
		v.Decision = l.Limiter.Peek(key)
		v.Decision.Allowed, v.Decision.RetryAfter = false, turn-upTo
		return
	}
	if !sleep(r.Context(), v, turn) {
		reserved.Cancel()
	}
}

// wait waits in the key's line. What it returns is not Allowed unless the units were taken
// by it.
func (l *bound[K]) wait(r *http.Request, v *ruling, key K, n int64, upTo time.Duration) (none cell.Reservation[K]) {
	ctx, cancel := context.WithTimeout(r.Context(), upTo)
	defer cancel()
	began := time.Now()
	err := l.Limiter.Wait(ctx, key, n)
	v.Waited = time.Since(began)
	switch {
	case err == nil:
		v.Decision = l.Limiter.Peek(key)
	case r.Context().Err() != nil:
		v.Reason = Cancelled
	default:
		// Its turn would come too late, or did. When it may come back has changed by now.
		again := l.Limiter.Reserve(key, n, 0)
		if v.Decision = again.Decision; again.Wait > 0 {
			again.Cancel()
			v.Decision.Allowed, v.Decision.RetryAfter = false, again.Wait
		}
		return again
	}
	return none
}

// sleep waits as long, unless the context ends: that is the verdict then.
func sleep(ctx context.Context, v *ruling, d time.Duration) bool {
	began := time.Now()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		v.Reason = Cancelled
	}
	v.Waited += time.Since(began)
	return v.Reason != Cancelled
}
