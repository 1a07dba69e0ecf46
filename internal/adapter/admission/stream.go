package admission

import (
	"context"
	"time"

	"github.com/ral-limiter/ral/limits"
)

// Stream charges a request while its answer is written, by Parts.Stream. It is also the request's Settlement.
// It is for one goroutine at a time.
type Stream[R, S any] struct {
	Settlement
	by     *Controller[R, S]
	r      R
	limits []streamed[R, S]
}

// streamed is a limit with its units of an answer.
type streamed[R, S any] struct {
	parts *Parts[R, S]
	take  func(ctx context.Context, n int64) (limits.Grant, error)
	// taken are the units taken so far, of them cost before the answer, and step in the last Pay.
	taken, cost, step int64
	// grant is the grant of step.
	grant limits.Grant
}

// Streams reports whether any limit has a Stream.
func (d *Controller[R, S]) Streams() bool {
	for _, p := range d.parts {
		if p != nil && p.Stream != nil {
			return true
		}
	}
	return false
}

// Stream returns the Stream of an admitted request whose units settlement holds.
func (d *Controller[R, S]) Stream(ctx context.Context, r R, settlement Settlement) *Stream[R, S] {
	all := &Stream[R, S]{Settlement: settlement, by: d, r: r}
	for i, parts := range d.parts {
		if parts == nil || parts.Stream == nil || settlement.holds()&(1<<i) == 0 {
			continue
		}
		func() {
			if d.Tried(i) {
				defer d.endShadow(ctx, i)
			}
			if take := d.limiters[i].stepper(r, d.shadow || d.Tried(i)); take != nil {
				all.limits = append(all.limits, streamed[R, S]{parts: parts, take: take, taken: settlement.cost(i), cost: settlement.cost(i)})
			}
		}()
	}
	return all
}

// Pay takes the units that an answer uses beyond those taken before. soFar includes what is written next. If a
// limit refuses, it takes nothing, and returns false and the time after which the limit has room, 0 if that may not
// be told.
func (s *Stream[R, S]) Pay(ctx context.Context, soFar S) (after time.Duration, ok bool) {
	for i := range s.limits {
		if after, ok = s.payOne(ctx, &s.limits[i], soFar); !ok {
			for j := range s.limits[:i] {
				streamed := &s.limits[j]
				streamed.taken -= streamed.step
				// Units that cannot be given back count.
				_ = streamed.grant.Cancel(context.WithoutCancel(ctx))
			}
			return after, false
		}
	}
	return 0, true
}

func (s *Stream[R, S]) payOne(ctx context.Context, streamed *streamed[R, S], soFar S) (after time.Duration, ok bool) {
	if s.by.Tried(streamed.parts.index) {
		defer s.by.endShadow(ctx, streamed.parts.index)
	}
	passes := s.by.shadow || s.by.Tried(streamed.parts.index)
	ok, streamed.step, streamed.grant = passes, 0, limits.Grant{}
	n := streamed.parts.Stream(s.r, soFar) - streamed.taken
	if n <= 0 {
		return 0, true
	}
	grant, err := streamed.take(ctx, n)
	switch {
	case err == nil && grant.Allowed:
		streamed.grant, streamed.step = grant, n
		streamed.taken += n
		return 0, true
	case err == nil && grant.TellsRetry():
		after = grant.RetryAfter
	}
	return after, passes
}

// settle settles the units taken before the answer. Those of Pay stay taken.
func (s *Stream[R, S]) settle(ctx context.Context, used [MaxLimits]int64) bool {
	for i := range s.limits {
		l := &s.limits[i]
		if u := &used[l.parts.index]; *u != asTaken {
			*u = max(0, *u-(l.taken-l.cost))
		}
	}
	return s.Settlement.settle(ctx, used)
}
