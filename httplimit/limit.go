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
	"github.com/ral-limiter/ral/policy"
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

	// Cost and Charge are those of this limit, in place of Options.Cost and Options.Charge:
	// see there. So a request can cost 1 of one limit, and its tokens or bytes of another.
	// If they are nil those of the options hold.
	Cost   func(r *http.Request) int64
	Charge func(r *http.Request, served Served) int64

	// PolicyFor returns the limit that holds for the request, as for a plan that its token
	// names, or nil for the limiter's own. It must be of the family of that: see
	// limits.Call. It runs once for each request, and once more for a line of
	// Options.Logger. A change from one request to the next keeps what the key has used:
	// units under windows of the same period, and under a Funnel the time until they have
	// drained. If units are to count there, too, call engine.Engine.ChangeLimit.
	PolicyFor func(r *http.Request) policy.Policy

	// Shadow tries this limit beside the others. It is decided for the requests that the
	// others admit, takes from its keys, and refuses and delays none. Verdict.Shadowed and
	// Stats.Shadowed tell what it would have refused. Clients are told nothing of it. If all
	// limits have Shadow, it is that of the options.
	//
	// Beside limits without Shadow, a panic of this limit's Key, Cost, Charge and PolicyFor, and
	// of its Limiter, ends there: the request goes on as if the limit were not tried.
	// Stats.ShadowFailed counts that, and errors of the Limiter. The first one of each limit is
	// logged at level Error. Not isolated are runtime.Goexit, fatal errors of the runtime, and
	// time: the functions run on the request's goroutine.
	Shadow bool
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
	of() *parts
	// stats returns the counters of the limiter. ok is false if it is no engine.
	stats() (s engine.Stats, ok bool)
	// serve serves a request under this limit alone. It is a method here, and not of the
	// Middleware, as a result that is passed by pointer through an interface would be
	// allocated.
	serve(m *Middleware, w http.ResponseWriter, r *http.Request, next http.Handler)
	// claim returns a claim of n units of the request's key, of a limit that is parts.plain.
	// ok is false if the request has no key. The chargeable is nil unless keep is set.
	claim(r *http.Request, n int64, keep bool) (claim engine.Claim, later chargeable, of quota, ok bool)
	// claimOfAny is claim for any limiter.
	claimOfAny(r *http.Request, n int64) (claim limits.Claim, of quota, ok bool)
	// hold takes n units of the request's key, and does not wait.
	hold(r *http.Request, n int64) (g limits.Grant, ok bool, err error)
	// keyOf returns a short hash of the request's key, for logs, and describes the policy
	// that holds for it if that is asked for.
	keyOf(r *http.Request, described bool) (fingerprint, policy string)
}

// settlement holds what a request has taken until its true cost is known.
type settlement interface {
	// settle charges what was used of each limit, or asTaken. It reports whether that is
	// sure to count.
	settle(ctx context.Context, used [maxLimits]int64) bool
}

// asTaken stands for the units that were taken.
const asTaken = -1

// chargeable is a key that more units can be charged to than were taken.
type chargeable interface{ charge(used int64) }

// parts are those of a limit that do not depend on the type of its keys.
type parts struct {
	name   string
	noKey  WhenNoKey
	cost   func(r *http.Request) int64
	charge func(r *http.Request, served Served) int64
	shadow bool
	plain  bool // the limiter is an engine, and no plan comes with requests
}

func (p *parts) of() *parts { return p }

// costs returns the units that a request takes of the limit. ok is false if they are below 0.
func (p *parts) costs(r *http.Request, v *result) (n int64, ok bool) {
	if p.cost == nil {
		return v.common, true
	}
	return p.ownCosts(r, v)
}

func (p *parts) ownCosts(r *http.Request, v *result) (n int64, ok bool) {
	if n = p.cost(r); n < 0 {
		v.Reason, v.Cost = Misconfigured, n
		return n, false
	}
	return n, true
}

// checkedLimit is a Limit whose fields are valid.
type checkedLimit[K comparable] struct {
	parts
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
	if _, tiers := l.Limiter.(*engine.Tiered[K]); tiers && l.PolicyFor != nil {
		return nil, bad("PolicyFor", "a function", "nil under an *engine.Tiered, whose several limits a plan cannot replace: make each of its engines a Limit")
	}
	e, _ := l.Limiter.(*engine.Engine[K])
	return &checkedLimit[K]{parts{l.Name, l.WhenNoKey, l.Cost, l.Charge, l.Shadow, e != nil && l.PolicyFor == nil}, l, e}, nil
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
		later = &engineKey[K]{l.engine, key, n}
	}
	return l.engine.Claim(key, n), later, quotaOf(l.engine.LimitFor(key)), true
}

func (l *checkedLimit[K]) claimOfAny(r *http.Request, n int64) (claim limits.Claim, of quota, ok bool) {
	key, ok := l.find(r)
	if !ok {
		return claim, of, false
	}
	plan := l.plan(r)
	return limits.For(l.Limiter, limits.Call[K]{Key: key, N: n, Limit: plan}), quotaOf(l.limit(key, plan)), true
}

func (l *checkedLimit[K]) hold(r *http.Request, n int64) (g limits.Grant, ok bool, err error) {
	key, ok := l.find(r)
	if !ok {
		return g, false, nil
	}
	g, err = l.Limiter.Hold(r.Context(), limits.Call[K]{Key: key, N: n, NoWait: true, Limit: l.plan(r)})
	return g, true, err
}

// plan returns the limit that comes with the request, or nil.
func (l *checkedLimit[K]) plan(r *http.Request) policy.Policy {
	if l.PolicyFor == nil {
		return nil
	}
	return l.PolicyFor(r)
}

// limit returns the limit that holds for the key, under a plan or without.
func (l *checkedLimit[K]) limit(key K, plan policy.Policy) policy.Policy {
	if plan != nil {
		return plan
	}
	return l.Limiter.LimitFor(key)
}

func (l *checkedLimit[K]) keyOf(r *http.Request, described bool) (fingerprint, limit string) {
	key, ok := l.find(r)
	if !ok {
		return "", ""
	}
	if described {
		if p := l.limit(key, l.plan(r)); p != nil {
			limit = p.String()
		}
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%v", key))
	return hex.EncodeToString(sum[:6]), limit
}

func (l *checkedLimit[K]) serve(m *Middleware, w http.ResponseWriter, r *http.Request, next http.Handler) {
	var v result
	var s settlement
	if m.begin(r, &v) {
		s = l.takeOne(r, &v, m)
	}
	m.carryOut(w, r, next, &v, nil, s)
}

// takeOne takes under this limit alone, and waits for the request's turn if need be. The
// settlement is nil unless the request is charged afterwards and is admitted.
func (l *checkedLimit[K]) takeOne(r *http.Request, v *result, m *Middleware) settlement {
	var ok bool
	if v.Cost, ok = l.costs(r, v); !ok {
		return nil
	}
	key, ok := l.find(r)
	if !ok {
		v.keyless(l.WhenNoKey, l.Name)
		return nil
	}
	// The limit may differ from key to key and from call to call, so it is not kept. It is
	// looked up before units are taken, as engine.PolicyFor may panic.
	plan, upTo := l.plan(r), m.options.WaitUpTo
	v.Limit, v.quota = l.Name, quotaOf(l.limit(key, plan))
	if upTo <= 0 && !m.charges && !m.shadow && plan == nil {
		a, err := l.Limiter.Ask(r.Context(), key, v.Cost)
		v.conclude(r, &a, err)
		return nil
	}
	g, err := l.Limiter.Hold(r.Context(), limits.Call[K]{
		Key: key, N: v.Cost, Patience: upTo, NoWait: m.shadow, Limit: plan,
	})
	if g.Wait > 0 && g.Allowed && !m.shadow && plan == nil {
		l.describe(r, v, key, &g)
	}
	v.conclude(r, &g.Answer, err)
	if !m.charges || v.Reason != Admitted {
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
	n       int64 // units that were taken
}

func (k *engineKey[K]) charge(used int64) {
	if used > k.n {
		k.limiter.Refund(k.key, k.n-used)
	}
}

// oneTaken implements settlement for one limit.
type oneTaken struct{ limits.Grant }

func (t *oneTaken) settle(ctx context.Context, used [maxLimits]int64) bool {
	return t.Settle(ctx, used[0]) == nil // gives back to where the units were taken
}
