package httplimit

import (
	"cmp"
	"fmt"
	"net/http"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/adapter/admission"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// Limit is a limiter and the key that it limits requests by. Limiter and Key are required.
type Limit[K comparable] struct {
	// Name identifies the limit in header fields and answers. It must be printable
	// ASCII of at most 64 bytes, and different for each limit. The default is Options.Name. The
	// further limits of an *engine.Tiered are "name-2", "name-3" and so on: each is a limit by
	// itself.
	Name string
	// Limiter decides: an *engine.Engine, an *engine.Tiered, a *fleet.Limiter, a *single.Limiter by
	// limits.ForAnyKey, or any other limits.Limiter. Several limits may share one.
	//
	// Under a policy.InFlight a request is in use until its handler returns, also if the handler panics, has
	// taken over the connection, or goes on without its client. It needs no Charge. Put the middleware inside an
	// http.TimeoutHandler: outside, the request ends with the timeout although its handler may still run.
	Limiter limits.Limiter[K]
	// Key finds the key of a request. The zero value of K means that there is none.
	Key func(r *http.Request) K
	// WhenNoKey chooses the answer to a request without a key.
	WhenNoKey limits.WhenNoKey

	// Cost and Charge, if not nil, replace Options.Cost and Options.Charge for this limit. So a
	// request can cost 1 of a limit, and its tokens or bytes of another. Charge does not run for a
	// request that has no key of this limit, or that this limit, with Shadow, would have refused.
	Cost   func(r *http.Request) int64
	Charge func(r *http.Request, served Served) int64

	// Stream, if not nil, returns the units that the response has used so far, and charges them while
	// it is written: the tokens of a stream, by soFar.Events, soFar.Bytes, or a number that the
	// handler keeps in the request's context. Stream runs before each write, with the bytes of that
	// write in soFar. Units beyond the Cost and those charged before are taken then. A Stream that
	// rounds up charges in larger steps. The handler should write whole events.
	//
	// If a limit has no room, nothing of the write is charged or sent, and the response ends: with
	// [LastEvent], or as a 429 if it has not begun. The write returns [ErrUsedUp], and the request's
	// context is cancelled. In the end Charge, if not nil, corrects the units, and otherwise Stream
	// does. Units that were not used after all then come back, at most the Cost. With Shadow no
	// response ends.
	Stream func(r *http.Request, soFar Served) int64

	// PolicyFor returns the request's limit, as for a plan that its token names, or nil for the
	// limiter's own. The limit must be of the same family: see limits.Call. PolicyFor runs once for each
	// request, and once more for a line of Options.Logger or a turn. A change between requests keeps the
	// key's use: units under windows of the same period, and under a Funnel the time until they have
	// drained. engine.Engine.ChangeLimit keeps units there too.
	PolicyFor func(r *http.Request) policy.Policy

	// Shadow tries this limit beside the others. The limit decides requests that the others admit
	// and takes from its keys, but refuses and delays none. Clients are told nothing of this limit.
	// limits.Verdict.Shadowed and Stats.Shadowed tell its refusals. If all limits have
	// Shadow, Options.Shadow is set.
	//
	// Beside limits without Shadow, a panic of its Key, Cost, Charge, PolicyFor or Limiter ends
	// there, and the request goes on. Stats.ShadowFailed counts that, and errors of the Limiter.
	// The first of each limit is logged at level Error. Not isolated are runtime.Goexit, fatal
	// errors of the runtime, and time: the functions run on the request's goroutine.
	Shadow bool

	// Hidden keeps this limit from clients, as a limit against floods beside a visible quota. It
	// refuses, but no field and no body has its name or its numbers, except the time after which the
	// request may be made again. The fields tell of the limits that are not Hidden: limits.Verdict.Limit
	// is a hidden limit only if no other refuses too, or admits too.
	Hidden bool
}

// AnyLimit is a [Limit] of any type of key.
type AnyLimit interface {
	// tiers returns the limits of an *engine.Tiered, and otherwise the limit itself. common is its
	// default name.
	tiers(common string) []AnyLimit
	// prepare checks the limit, and returns it with a function that serves requests under it alone.
	// at is its index, name its default name. bad makes the error about a field.
	prepare(at int, name string, bad admission.FieldFault) (checked, serveAlone, error)
}

type (
	// checked is an admission.Limit of requests with the type of its keys hidden.
	checked = admission.Any[*http.Request, Served]
	// serveAlone serves a request under a single limit. It knows the type of the keys: a pointer to
	// the result passed through an interface would escape to the heap.
	serveAlone = func(m *Middleware, w http.ResponseWriter, r *http.Request, next http.Handler)
	result     = admission.Result
	quota      = admission.Quota
)

func (l Limit[K]) tiers(common string) (all []AnyLimit) {
	tiered, ok := l.Limiter.(*engine.Tiered[K])
	if !ok || tiered == nil || l.PolicyFor != nil {
		return []AnyLimit{l}
	}
	l.Name = cmp.Or(l.Name, common)
	for i, limiter := range tiered.Engines() {
		tier := l
		if tier.Limiter = limiter; i > 0 {
			tier.Name += fmt.Sprintf("-%d", i+1)
		}
		all = append(all, tier)
	}
	// The Tiered is zero.
	if all == nil {
		return []AnyLimit{l}
	}
	return all
}

func (l Limit[K]) prepare(index int, name string, bad admission.FieldFault) (checked, serveAlone, error) {
	limit := &admission.Limit[*http.Request, K, Served]{
		Parts:   admission.Parts[*http.Request, Served]{Name: l.Name, WhenNoKey: l.WhenNoKey, Cost: l.Cost, Charge: l.Charge, Stream: l.Stream, Shadow: l.Shadow, Hidden: l.Hidden},
		Limiter: l.Limiter, Key: l.Key, PolicyFor: l.PolicyFor,
	}
	err := limit.Check(index, name, "a key function, such as httplimit.ByAddr; ByHeader returns nil for an invalid field name", bad)
	return limit, func(middleware *Middleware, w http.ResponseWriter, request *http.Request, next http.Handler) {
		var v result
		var settlement admission.Settlement
		if middleware.begin(request, &v) {
			settlement = limit.TakeOne(request.Context(), request, &v, middleware.control)
		}
		middleware.carryOut(w, request, next, &v, nil, settlement)
	}, err
}
