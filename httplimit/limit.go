package httplimit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/shape"
	"github.com/ral-limiter/ral/limits"
)

// Limit is a limiter that limits requests, and the key that it limits them by. Limiter and
// Key are required.
type Limit[K comparable] struct {
	// Name tells clients which limit a header field or an answer is about. It must be
	// printable ASCII of at most 64 bytes. The default is Options.Name. Several limits of
	// one middleware need different names.
	Name string
	// Limiter decides: an *engine.Engine, an *engine.Tiered, a *fleet.Limiter, a
	// *single.Limiter by limits.Keyless, or any other limits.Limiter. Several limits may
	// share one.
	Limiter limits.Limiter[K]
	// Key finds the key of a request. The zero value of K means that there is none.
	Key func(r *http.Request) K
	// WhenNoKey chooses the answer to a request without a key.
	WhenNoKey WhenNoKey
}

// AnyLimit is a [Limit] of any type of key.
type AnyLimit interface {
	// check returns the limit as a limiter. name is its name if it has none of its own.
	// bad makes the error about a field.
	check(name string, bad fieldFault) (limiter, error)
}

type fieldFault = func(field string, value any, want string) error

// limiter is a Limit with the type of its keys hidden.
type limiter interface {
	title() string
	// stats returns the counters of the limiter. ok is false if it is no engine.
	stats() (s engine.Stats, ok bool)
	isEngine() bool
	// serve serves a request under this limit alone. It is a method here, and not of the
	// Middleware, as a result that is passed by pointer through an interface would be
	// allocated.
	serve(m *Middleware, w http.ResponseWriter, r *http.Request, next http.Handler)
	// claim returns a claim of n units of the request's key, if the limiter is an engine. ok
	// is false if the request has no key. The chargeable is nil unless keep is set.
	claim(r *http.Request, n int64, keep bool) (claim engine.Claim, later chargeable, of quota, ok bool)
	// claimOfAny is claim for any limiter.
	claimOfAny(r *http.Request, n int64) (claim limits.Claim, of quota, ok bool)
	whenNoKey() WhenNoKey
	// keyOf returns a short hash of the request's key, for logs, and describes the policy
	// that holds for it if that is asked for.
	keyOf(r *http.Request, described bool) (fingerprint, policy string)
}

// settlement holds what a request has taken until its true cost is known.
type settlement interface {
	// settle charges actual units in place of cost, the units that were taken. It reports
	// whether that is sure to count.
	settle(ctx context.Context, cost, actual int64) bool
}

// chargeable is a key that more units can be charged to.
type chargeable interface{ charge(n int64) }

// checkedLimit is a Limit whose fields are valid.
type checkedLimit[K comparable] struct {
	Limit[K]
	engine *engine.Engine[K] // nil if the Limiter is something else
}

func (l Limit[K]) check(name string, bad fieldFault) (limiter, error) {
	if l.Name == "" {
		l.Name = name
	}
	switch want := wrongName(l.Name); {
	case want != "":
		return nil, bad("Name", fmt.Sprintf("%.80q", l.Name), want)
	case shape.IsNil(l.Limiter):
		return nil, bad("Limiter", "nil", "a limiter, such as engine.New returns")
	case l.Key == nil:
		return nil, bad("Key", "nil", "a key function, such as httplimit.ByAddr; ByHeader returns nil for an invalid field name")
	case l.WhenNoKey < Refuse || l.WhenNoKey > Share:
		return nil, bad("WhenNoKey", int(l.WhenNoKey), "Refuse, Skip or Share")
	}
	e, _ := l.Limiter.(*engine.Engine[K])
	return &checkedLimit[K]{l, e}, nil
}

const longestName = 64

// wrongName returns what an invalid name should be, or "" for a valid one.
func wrongName(name string) (want string) {
	for _, c := range []byte(name) {
		if c < ' ' || c > '~' {
			return "printable ASCII"
		}
	}
	if len(name) > longestName {
		return "at most 64 bytes"
	}
	return ""
}

func (l *checkedLimit[K]) title() string        { return l.Name }
func (l *checkedLimit[K]) isEngine() bool       { return l.engine != nil }
func (l *checkedLimit[K]) whenNoKey() WhenNoKey { return l.WhenNoKey }

func (l *checkedLimit[K]) stats() (s engine.Stats, ok bool) {
	if l.engine == nil {
		return s, false
	}
	return l.engine.Stats(), true
}

// find returns the request's key, and reports whether the limit applies to it. Requests
// without a key share the zero key under Share.
func (l *checkedLimit[K]) find(r *http.Request) (key K, ok bool) {
	var none K
	key = l.Key(r)
	return key, key != none || l.WhenNoKey == Share
}

func (l *checkedLimit[K]) claim(r *http.Request, n int64, keep bool) (claim engine.Claim, later chargeable, of quota, ok bool) {
	key, ok := l.find(r)
	if !ok {
		return claim, nil, of, false
	}
	if keep {
		later = &engineKey[K]{l.engine, key}
	}
	return l.engine.Claim(key, n), later, quotaOf(l.engine.LimitFor(key)), true
}

func (l *checkedLimit[K]) claimOfAny(r *http.Request, n int64) (claim limits.Claim, of quota, ok bool) {
	key, ok := l.find(r)
	if !ok {
		return claim, of, false
	}
	return limits.For(l.Limiter, limits.Call[K]{Key: key, N: n}), quotaOf(l.Limiter.LimitFor(key)), true
}

func (l *checkedLimit[K]) keyOf(r *http.Request, described bool) (fingerprint, policy string) {
	key, ok := l.find(r)
	if !ok {
		return "", ""
	}
	if described {
		policy = l.Limiter.LimitFor(key).String()
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%v", key))
	return hex.EncodeToString(sum[:6]), policy
}

func (l *checkedLimit[K]) serve(m *Middleware, w http.ResponseWriter, r *http.Request, next http.Handler) {
	var v result
	var s settlement
	if m.begin(r, &v) {
		s = l.takeOne(r, &v, &m.options)
	}
	m.carryOut(w, r, next, &v, nil, s)
}

// takeOne takes v.Cost units under this limit alone, and waits for the request's turn if
// need be. The settlement is nil unless there is Options.Charge and the request is admitted.
func (l *checkedLimit[K]) takeOne(r *http.Request, v *result, o *Options) settlement {
	key, ok := l.find(r)
	if !ok {
		v.keyless(l.WhenNoKey, l.Name)
		return nil
	}
	// The limit may differ from key to key and from call to call, so it is not kept. It is
	// looked up before units are taken, as engine.PolicyFor may panic.
	v.Limit, v.quota = l.Name, quotaOf(l.Limiter.LimitFor(key))
	if o.WaitUpTo <= 0 && o.Charge == nil && !o.Shadow {
		a, err := l.Limiter.Ask(r.Context(), key, v.Cost)
		v.conclude(r, &a, err)
		return nil
	}
	g, err := l.Limiter.Hold(r.Context(), limits.Call[K]{
		Key: key, N: v.Cost, Patience: o.WaitUpTo, NoWait: o.Shadow,
	})
	if g.Wait > 0 && g.Allowed && !o.Shadow {
		l.describe(r, v, key, &g)
	}
	v.conclude(r, &g.Answer, err)
	if o.Charge == nil || v.Reason != Admitted {
		return nil
	}
	return &oneTaken{g}
}

// describe looks up the limit again after a wait, as it may have changed. If
// engine.PolicyFor panics what was taken is given back.
func (l *checkedLimit[K]) describe(r *http.Request, v *result, key K, g *limits.Grant) {
	described := false
	defer func() {
		if !described {
			_ = g.Cancel(context.WithoutCancel(r.Context()))
		}
	}()
	// A limit of another family refuses those that come later.
	if q := quotaOf(l.Limiter.LimitFor(key)); q.limit == g.Limit {
		v.quota = q
	}
	described = true
}

// conclude completes the result of a limit that has decided alone.
func (v *result) conclude(r *http.Request, a *limits.Answer, err error) {
	v.Decision, v.Basis, v.Waited = a.Decision, a.Basis, a.Wait
	switch {
	case err != nil:
		v.failed(r, err)
	case !a.Allowed:
		v.Reason, v.RetryAfter, v.violated = v.quota.reasonOf(a), a.RetryAfter, 1
	}
	v.quota.follow(a)
}

// failed notes that a limiter returned an error in place of an answer.
func (v *result) failed(r *http.Request, err error) {
	v.Reason, v.Basis = Unavailable, limits.NewBasis(v.Basis.Source(), false, err)
	if r.Context().Err() != nil {
		v.Reason = Cancelled
	}
}

// keyless notes that a request has no key for the limit of that name.
func (v *result) keyless(when WhenNoKey, name string) {
	if when == Skip {
		v.Reason = Exempt
		return
	}
	v.Reason, v.Limit = Keyless, name
}

// engineKey implements chargeable.
type engineKey[K comparable] struct {
	limiter *engine.Engine[K]
	key     K
}

func (k *engineKey[K]) charge(n int64) { k.limiter.Refund(k.key, -n) }

// oneTaken implements settlement for one limit.
type oneTaken struct{ limits.Grant }

func (t *oneTaken) settle(ctx context.Context, _, actual int64) bool {
	return t.Settle(ctx, actual) == nil // gives back to where the units were taken
}
