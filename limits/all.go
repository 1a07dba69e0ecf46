package limits

import (
	"context"
	"slices"
	"time"

	"github.com/ral-limiter/ral/internal/binding"
	"github.com/ral-limiter/ral/internal/shape"
)

// Claim is a call of one limiter, for AskAll. For makes it. The zero Claim panics.
type Claim struct {
	hold   func(ctx context.Context, patience time.Duration, noWait bool) (Grant, error)
	n      int64
	atOnce int64 // the most units that can remain under its limit
	remote bool
}

// For makes a Claim of a call of a limiter. The call's Patience and NoWait are those of
// AskAll.
func For[K comparable](l Limiter[K], call Call[K]) Claim {
	limit := call.Limit
	if limit == nil {
		limit = l.LimitFor(call.Key)
	}
	c := Claim{
		hold: func(ctx context.Context, patience time.Duration, noWait bool) (Grant, error) {
			call := call
			call.Patience, call.NoWait = patience, noWait
			return l.Hold(ctx, call)
		},
		n: call.N, remote: isRemote(l),
	}
	if limit != nil {
		c.atOnce = shape.AtOnce(limit)
	}
	return c
}

// Outcome is the answer of AskAll. Its methods are for one goroutine at a time, and the
// first call of Settle or Cancel ends it.
type Outcome struct {
	// Allowed reports whether all claims were met. Otherwise nothing was taken, or it was
	// given back.
	Allowed bool
	// RetryAfter is 0 if Allowed, and otherwise the longest of those of the claims that
	// refused. A claim that was not asked may refuse then. It is policy.Never if one that
	// was asked never will be met.
	RetryAfter time.Duration
	// Binding is the index of the claim that decided: of the refused ones the one that has
	// to wait longest, of the allowed ones the one with the least share of its limit left.
	// It is -1 if there is none.
	Binding int
	// Answers has one for each claim, in their order. The Source of a claim that was not
	// asked, because another had refused, is SourceNone. If the outcome is not Allowed,
	// answers that are Allowed are from before their units were given back.
	Answers []Answer
	// Waited is the time for which the call waited.
	Waited time.Duration

	grants []Grant // in the order of the claims; nil if nothing is held
}

// none is the index of no claim.
const none = -1

// AskAll takes the units of every claim or of none: by address in process, and by tenant
// over a fleet. The claims in process are asked first, and all of them, so that a call that
// one of them refuses costs no round trip. The others are asked in their order, until one
// refuses. If one refuses or fails, also by a panic, what was taken is given back as by
// Grant.Cancel. So no limit is ever exceeded. A call that comes at that moment may be
// refused by a limit that has room the next. A process that dies in between leaves charged
// what its calls under way had taken elsewhere, and nothing else.
//
// The patience bounds how long the call waits: in the line of the claim that refuses it
// longest, while it holds nothing else. When its turn has come it takes from the others at
// once. With none it does not wait, and a limit that would delay it refuses.
//
// The error is that of the first claim that failed, as of Limiter.Hold. The Outcome, which
// is not Allowed then, has the answers so far. Without claims the call is allowed.
//
// Several engines are asked faster by engine.TakeAll, and several limiters of one Redis by
// fleet.TakeAll.
func AskAll(ctx context.Context, patience time.Duration, claims ...Claim) (Outcome, error) {
	m := mixed{claims: claims, grants: make([]Grant, len(claims)), patient: patience > 0}
	began := time.Now()
	allowed, err := m.take(ctx, none)
	for !allowed && err == nil && m.patient {
		at, retry := m.last()
		left := patience - time.Since(began)
		if at == none || retry > left {
			break
		}
		var g Grant
		g, err = claims[at].hold(ctx, left, false)
		m.grants[at] = g
		m.waited += g.Wait
		if err != nil || !g.Allowed {
			break
		}
		allowed, err = m.take(ctx, at)
	}
	return m.outcome(allowed && err == nil), err
}

// mixed is a call on claims of any limiters.
type mixed struct {
	claims  []Claim
	grants  []Grant
	patient bool
	waited  time.Duration
}

// take takes from each claim, except from the one that is held already. If one refuses or
// fails, nothing is held.
func (m *mixed) take(ctx context.Context, has int) (allowed bool, err error) {
	defer func() {
		if !allowed {
			m.giveBack(ctx)
		}
	}()
	met := m.takeEach(ctx, has, false, &err)
	if met && err == nil {
		met = m.takeEach(ctx, has, true, &err)
	}
	allowed = met && err == nil
	return allowed, err
}

// takeEach is take for the claims in process or for the others. Those in process are all
// asked, so that the answer has all that refuse.
func (m *mixed) takeEach(ctx context.Context, has int, remote bool, err *error) (met bool) {
	met = true
	for i := range m.claims {
		c := &m.claims[i]
		if c.remote != remote || i == has {
			continue
		}
		// A call without patience passes by those in line, as Take does. In no case does it
		// wait while it holds something. A nanosecond is no wait, and keeps a limit that
		// delays calls by itself from doing so.
		m.grants[i], *err = c.hold(ctx, 1, !m.patient)
		if *err != nil {
			return false
		}
		if !m.grants[i].Allowed {
			met = false
		}
		if !met && remote {
			return false
		}
	}
	return met
}

// giveBack gives all back, also if one of the limiters panics. A limiter that cannot be
// reached keeps what it has charged, as it does for any call whose answer is lost.
func (m *mixed) giveBack(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	for i := range m.grants {
		defer func() { _ = m.grants[i].Cancel(ctx) }()
	}
}

// last returns the claim that refuses and has to be waited for longest.
func (m *mixed) last() (at int, retry time.Duration) {
	at = none
	for i := range m.grants {
		g := &m.grants[i]
		if g.Source() != SourceNone && !g.Allowed && (at == none || g.RetryAfter > retry) {
			at, retry = i, g.RetryAfter
		}
	}
	return at, retry
}

// outcome returns the answer.
func (m *mixed) outcome(allowed bool) Outcome {
	out := Outcome{Allowed: allowed, Answers: make([]Answer, len(m.claims)), Waited: m.waited}
	b := binding.New(allowed)
	for i := range m.grants {
		a := m.grants[i].Answer
		if out.Answers[i] = a; a.Source() != SourceNone {
			b.See(i, &a.Decision, m.claims[i].atOnce)
		}
	}
	out.Binding, out.RetryAfter = b.Index, b.RetryAfter
	if allowed {
		out.grants = m.grants
	}
	return out
}

// Settle ends the outcome: see Grant.Settle. used has one number for each claim, in their
// order: how many units were used. A claim without a number used what it asked for. The
// error is that of the first limiter that failed. The others are settled all the same.
func (o *Outcome) Settle(ctx context.Context, used ...int64) (err error) {
	grants := o.grants
	o.grants = nil
	for i := range slices.Backward(grants) {
		if i >= len(used) {
			continue
		}
		defer func() {
			if failed := grants[i].Settle(ctx, used[i]); err == nil {
				err = failed
			}
		}()
	}
	return nil
}

// Cancel ends the outcome, and gives all units back.
func (o *Outcome) Cancel(ctx context.Context) error {
	return o.Settle(ctx, make([]int64, len(o.grants))...)
}
