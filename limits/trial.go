package limits

import (
	"context"
	"hash/maphash"
	"reflect"
	"sync/atomic"

	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/policy"
)

// TrialConfig configures a Trial. Live and Candidate are required.
type TrialConfig[K comparable] struct {
	// Live is the limiter that decides.
	Live Limiter[K]
	// Candidate is asked about the same calls, for example an engine with the policy to be tried. A
	// Remote candidate costs each call a round trip. The caller must close Candidate.
	Candidate Limiter[K]
	// OneIn chooses the keys that are tried: one in OneIn keys, by hash, and all calls of such a key. At
	// 0 and 1 every key is tried.
	OneIn int
	// OnDifference, if not nil, is called when a limiter admits a call and the other does not.
	// OnDifference runs on the call's goroutine, after both have decided.
	OnDifference func(key K, n int64, live, candidate Answer)
}

// Trial is a limiter that tries a candidate on the same calls. The candidate's answers are counted
// and have no effect, nor have its errors or panics. The candidate takes as if it were live, also
// for calls that the live limiter refuses. Call NewTrial to make one. Its methods are safe for
// concurrent use.
type Trial[K comparable] struct {
	config TrialConfig[K]
	seed   maphash.Seed
	// same counts the calls refused by both limiters at 0, and those admitted by both at 1.
	same [2]atomic.Uint64
	// refuse, admit and failed are the counters WouldRefuse, WouldAdmit and Failed of TrialStats.
	refuse, admit, failed atomic.Uint64
}

// TrialStats counts the calls on tried keys. It does not count looks, nor calls on which the live limiter returned an
// error.
type TrialStats struct {
	// Admitted counts the calls admitted by both limiters.
	Admitted uint64
	// Refused counts the calls refused by both limiters.
	Refused uint64
	// WouldRefuse counts the calls refused by the candidate, and admitted by the live limiter.
	WouldRefuse uint64
	// WouldAdmit counts the calls admitted by the candidate, and refused by the live limiter.
	WouldAdmit uint64
	// Failed counts the calls on which the candidate returned an error, or panicked.
	Failed uint64
}

// NewTrial checks the configuration. The error is a *policy.FieldError.
func NewTrial[K comparable](config TrialConfig[K]) (*Trial[K], error) {
	bad := func(field string, value any, want string) (*Trial[K], error) {
		return nil, &policy.FieldError{Of: "limits.TrialConfig", Field: field, Value: value, Want: want}
	}
	switch {
	case shape.IsNil(config.Live):
		return bad("Live", "nil", "a limiter, such as engine.New returns")
	case shape.IsNil(config.Candidate):
		return bad("Candidate", "nil", "a limiter, such as engine.New returns")
	case same(config.Live, config.Candidate):
		return bad("Candidate", "the live limiter", "another limiter: one that is asked twice counts each call twice")
	case config.OneIn < 0:
		return bad("OneIn", config.OneIn, "1 or more, or 0 for every key")
	}
	return &Trial[K]{config: config, seed: maphash.MakeSeed()}, nil
}

// same reports whether both are the same limiter.
func same[K comparable](a, b Limiter[K]) bool {
	return reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}

// Stats returns the counters. They are not read at one instant.
func (t *Trial[K]) Stats() TrialStats {
	return TrialStats{
		Admitted: t.same[1].Load(), Refused: t.same[0].Load(),
		WouldRefuse: t.refuse.Load(), WouldAdmit: t.admit.Load(), Failed: t.failed.Load(),
	}
}

// Live returns the limiter that decides.
func (t *Trial[K]) Live() Limiter[K] { return t.config.Live }

// Candidate returns the limiter that is tried.
func (t *Trial[K]) Candidate() Limiter[K] { return t.config.Candidate }

// LimitFor implements Limiter, by the live limiter.
func (t *Trial[K]) LimitFor(key K) policy.Policy { return t.config.Live.LimitFor(key) }

// Remote reports whether either limiter is Remote.
func (t *Trial[K]) Remote() bool { return isRemote(t.config.Live) || isRemote(t.config.Candidate) }

// Admit implements Limiter. It allocates nothing in addition to what the two limiters allocate.
func (t *Trial[K]) Admit(ctx context.Context, key K, n int64) (Answer, error) {
	var tried verdict
	if n != 0 {
		tried = t.ask(ctx, Call[K]{Key: key, N: n})
	}
	answer, err := t.config.Live.Admit(ctx, key, n)
	t.compare(ctx, key, n, &tried, &answer, err)
	return answer, err
}

// Hold implements Limiter. A grant settles both limiters' units. The candidate ignores Call.Limit.
func (t *Trial[K]) Hold(ctx context.Context, call Call[K]) (Grant, error) {
	tried := t.ask(ctx, Call[K]{Key: call.Key, N: call.N, Patience: call.Patience})
	grant, err := t.config.Live.Hold(ctx, call)
	t.compare(ctx, call.Key, call.N, &tried, &grant.Answer, err)
	if tried.grant.State.Settler != nil && grant.Allowed {
		grant.State = GrantState{Settler: trialSettler[K]{t}, Ref: &trialHeld{Grant{State: grant.State}, tried.grant}}
	}
	return grant, err
}

// Look is for AskAll. It returns the answer that the live limiter's Hold would give now without waiting. Only Hold
// asks the candidate.
func (t *Trial[K]) Look(call Call[K]) (answer Answer, ok bool) {
	if live, ok := t.config.Live.(looker[K]); ok {
		return live.Look(call)
	}
	return answer, false
}

// verdict is the candidate's answer, if the candidate was asked.
type verdict struct {
	asked, failed bool
	grant         Grant
}

// ask asks the candidate, if the key is tried. The candidate delays no call, but may take units for a turn within the
// call's patience.
func (t *Trial[K]) ask(ctx context.Context, call Call[K]) (verdict verdict) {
	// recovers also ends the panic of a key that cannot be hashed. Such a key is not tried.
	defer t.recovers(&verdict.failed)
	if !t.tries(call.Key) {
		return verdict
	}
	verdict.asked, verdict.failed, call.NoWait = true, true, true
	grant, err := t.config.Candidate.Hold(ctx, call)
	verdict.grant, verdict.failed = grant, err != nil
	return verdict
}

// tries reports whether the key is tried. tries panics if the key cannot be hashed.
func (t *Trial[K]) tries(key K) bool {
	return t.config.OneIn <= 1 || maphash.Comparable(t.seed, key)%uint64(t.config.OneIn) == 0
}

// recovers ends a panic of the candidate or of OnDifference, and sets failed. It must be deferred.
func (t *Trial[K]) recovers(failed *bool) {
	if recover() != nil {
		*failed = true
	}
}

// compare counts a call by both answers. If the live limiter returned an error, the candidate's grant is given back.
func (t *Trial[K]) compare(ctx context.Context, key K, n int64, verdict *verdict, live *Answer, err error) {
	failed := verdict.failed
	switch {
	case verdict.failed:
	case !verdict.asked:
		return
	case err != nil:
		failed = !t.settle(context.WithoutCancel(ctx), &verdict.grant, 0)
	// The call is a look.
	case n == 0:
	case verdict.grant.Allowed == live.Allowed && live.Allowed:
		t.same[1].Add(1)
	case verdict.grant.Allowed == live.Allowed:
		t.same[0].Add(1)
	case live.Allowed:
		t.refuse.Add(1)
		t.tell(key, n, live, &verdict.grant.Answer, &failed)
	default:
		t.admit.Add(1)
		t.tell(key, n, live, &verdict.grant.Answer, &failed)
	}
	if failed {
		t.failed.Add(1)
	}
}

func (t *Trial[K]) tell(key K, n int64, live, candidate *Answer, failed *bool) {
	if t.config.OnDifference == nil {
		return
	}
	defer t.recovers(failed)
	t.config.OnDifference(key, n, *live, *candidate)
}

// settle settles a grant of the candidate, and reports whether that succeeded.
func (t *Trial[K]) settle(ctx context.Context, grant *Grant, used int64) (ok bool) {
	var failed bool
	defer func() { ok = ok && !failed }()
	defer t.recovers(&failed)
	return grant.end(ctx, used) == nil
}

// trialSettler settles the units of both limiters.
type trialSettler[K comparable] struct{ *Trial[K] }

type trialHeld struct{ live, candidate Grant }

func (t trialSettler[K]) Settle(ctx context.Context, state GrantState, used int64) error {
	both := state.Ref.(*trialHeld)
	if !t.settle(ctx, &both.candidate, used) {
		t.failed.Add(1)
	}
	return both.live.end(ctx, used)
}

// Lost returns the channel of the live limiter's grant, and ignores the candidate's.
func (t trialSettler[K]) Lost(state GrantState) <-chan struct{} {
	return state.Ref.(*trialHeld).live.Lost()
}
