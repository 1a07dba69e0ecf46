package admission

import (
	"context"
	"time"

	"github.com/ral-limiter/ral/limits"
)

// Stream charges a request while its answer is written, by Parts.Stream. It is also the request's Settlement.
// Only one goroutine at a time may use it.
type Stream[R, S any] struct {
	Settlement
	by     *Controller[R, S]
	r      R
	limits []streamed[R, S]
}

// streamed is a limit with a Stream, and the units that an answer has taken of it.
type streamed[R, S any] struct {
	parts *Parts[R, S]
	take  func(ctx context.Context, n int64) (limits.Grant, error)
	// taken is the number of units taken so far. cost of them were taken before the answer, and step by the last
	// Pay.
	taken, cost, step int64
	// grant is the grant of step.
	grant limits.Grant
}

// Streams reports whether any limit has a Stream.
func (d *Controller[R, S]) Streams() bool {
	for _, parts := range d.parts {
		if parts != nil && parts.Stream != nil {
			return true
		}
	}
	return false
}

// Stream returns the Stream of an admitted request whose units settlement holds.
func (d *Controller[R, S]) Stream(ctx context.Context, request R, settlement Settlement) *Stream[R, S] {
	all := &Stream[R, S]{Settlement: settlement, by: d, r: request}
	for i, parts := range d.parts {
		if parts == nil || parts.Stream == nil || settlement.holds()&(1<<i) == 0 {
			continue
		}
		func() {
			if d.Tried(i) {
				defer d.endShadow(ctx, i)
			}
			if take := d.limiters[i].stepper(request, d.shadow || d.Tried(i)); take != nil {
				all.limits = append(all.limits, streamed[R, S]{parts: parts, take: take, taken: settlement.cost(i), cost: settlement.cost(i)})
			}
		}()
	}
	return all
}

// Pay takes the units that an answer uses beyond the units taken before. soFar describes the answer with the part that
// is to be written next. If a limit refuses, Pay takes nothing and returns false. after is then the time until the
// limit has room, or 0 if clients must not be told.
func (s *Stream[R, S]) Pay(ctx context.Context, soFar S) (after time.Duration, ok bool) {
	for i := range s.limits {
		if after, ok = s.payOne(ctx, &s.limits[i], soFar); !ok {
			for j := range s.limits[:i] {
				streamed := &s.limits[j]
				streamed.taken -= streamed.step
				// If units cannot be given back, they stay taken.
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

// settle settles the units taken before the answer. The units that Pay took stay taken.
func (s *Stream[R, S]) settle(ctx context.Context, used [MaxLimits]int64) bool {
	for i := range s.limits {
		streamed := &s.limits[i]
		if u := &used[streamed.parts.index]; *u != asTaken {
			*u = max(0, *u-(streamed.taken-streamed.cost))
		}
	}
	return s.Settlement.settle(ctx, used)
}
