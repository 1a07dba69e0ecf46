package httplimit

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/internal/adapter/admission"
	"github.com/ral-limiter/ral/internal/adapter/clientaddr"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// Middleware limits requests. Call [New] to make a Middleware with one limit, and [NewAll] for several;
// the zero Middleware is not usable. Its methods are safe for concurrent use. A Middleware needs no
// Close, but its engines do.
//
// Handler wraps the handler whose requests are to be limited. Stats counts their verdicts; Var and
// Metrics publish the counts, for package expvar and for exporters.
type Middleware struct {
	options Options
	// inform is Options.Inform in canonical form.
	inform   string
	control  *admission.Controller[*http.Request, Served]
	limiters []checked
	// single is nil if there are several limits.
	single serveAlone
	addr   *ClientAddr
	allow  *clientaddr.Prefixes
	deny   *clientaddr.Prefixes
	fields fieldWriter
	// exceeded has the answers to a refusal by a single limit, by its index.
	exceeded []body
	counters admission.Counters
	// unseen reports whether logUnseen has logged a request.
	unseen atomic.Bool
}

// New returns a middleware that holds each key to the limiter's limit. The limiter is an
// *engine.Engine, an *engine.Tiered, a *fleet.Limiter or any other limits.Limiter. An error is a
// *policy.FieldError. With keys of type netip.Addr, a client is looked up without allocation.
func New[K comparable](limiter limits.Limiter[K], key func(request *http.Request) K, options Options) (*Middleware, error) {
	parameter := func(_ int, field string) string { return strings.ToLower(field) }
	return assemble("httplimit.New", parameter, options, Limit[K]{Limiter: limiter, Key: key})
}

// NewAll returns a middleware that holds each request to up to 8 limits. A request passes, and is
// charged, only if all admit it, as by engine.TakeAll, or limits.AskAll if not all are engines. A
// refusal in process costs no round trip. Limits of a fleet that share a client (see
// fleet.Config.Redis) are asked in a single exchange; NewAll warns, in Options.Logger or the default
// logger, if they do not. RateLimit tells clients about the limit that decided, RateLimit-Policy
// about all that apply. An error is a *policy.FieldError.
func NewAll(options Options, limits ...AnyLimit) (*Middleware, error) {
	element := func(i int, field string) string { return fmt.Sprintf("limits[%d].%s", i, field) }
	return assemble("httplimit.NewAll", element, options, limits...)
}

func assemble(of string, name func(i int, field string) string, options Options, given ...AnyLimit) (*Middleware, error) {
	bad := func(field string, value any, want string) error {
		return &policy.FieldError{Of: of, Field: field, Value: value, Want: want}
	}
	allow, deny, err := options.validate()
	if err != nil {
		return nil, err
	}
	common := cmp.Or(options.Name, "default")
	var each []AnyLimit
	// from has the index in given for each element of each.
	var from []int
	for i, limit := range given {
		if shape.IsNil(limit) {
			return nil, bad(fmt.Sprintf("limits[%d]", i), "nil", "a httplimit.Limit")
		}
		tiers := limit.tiers(common)
		each, from = append(each, tiers...), append(from, slices.Repeat([]int{i}, len(tiers))...)
	}
	switch {
	case len(each) == 0:
		return nil, bad("limits", "empty", "1 to 8 limits")
	case len(each) > admission.MaxLimits:
		return nil, bad("limits", fmt.Sprintf("%d long", len(each)), "1 to 8 limits, with those of each engine.Tiered")
	}
	middleware := &Middleware{
		options: options,
		inform:  http.CanonicalHeaderKey(options.Inform),
		addr:    options.ClientAddr,
		allow:   allow,
		deny:    deny,
		fields:  fieldWriter{headers: cmp.Or(options.Headers, RateLimitHeaders)},
	}
	if middleware.addr == nil {
		middleware.addr = connection
	}
	for i, limit := range each {
		bad := func(field string, value any, want string) error {
			return bad(name(from[i], field), value, want)
		}
		checked, alone, err := limit.prepare(i, common, bad)
		if err != nil {
			return nil, err
		}
		if err := middleware.fields.Add(checked.Of().Name, checked.Of().Hidden, bad); err != nil {
			return nil, err
		}
		middleware.limiters = append(middleware.limiters, checked)
		if len(each) == 1 {
			middleware.single = alone
		}
	}
	unit := time.Second
	if options.Headers&RetryHeaders != 0 {
		// The field retry-after-ms counts milliseconds.
		unit = time.Millisecond
	}
	turns := admission.NewTurns(options.Spread, unit)
	if options.Inform != "" {
		// With Inform refused requests pass, so they need no turns.
		turns = nil
	}
	middleware.control = admission.New(admission.Config[*http.Request, Served]{
		Cost: options.Cost, Charge: options.Charge, WaitUpTo: options.WaitUpTo, Shadow: options.Shadow,
		Turns: turns, RetryGuess: options.RetryGuess, Log: admission.NewLog(options.Logger), Counters: &middleware.counters,
	}, middleware.limiters, nil)
	for i := range middleware.limiters {
		middleware.exceeded = append(middleware.exceeded, bodyOf(problemDetails, middleware.problem(nil, &result{Verdict: limits.Verdict{Reason: limits.OverLimit}, Violated: 1 << i})))
	}
	return middleware, nil
}

// Must returns middleware, and panics if err is not nil. Use it for settings that are constants.
func Must(middleware *Middleware, err error) *Middleware {
	if err != nil {
		panic(err)
	}
	return middleware
}

// Handler returns a handler that passes admitted requests on to next. The handler answers the others
// with their [Status] and problem details (RFC 9457) or, for clients that prefer text, as text.
// Several handlers may be wrapped; they share the limits. Handler panics if next is nil, as
// http.Handle does.
func (m *Middleware) Handler(next http.Handler) http.Handler {
	if next == nil {
		panic("httplimit: Handler: next is nil, want a handler, such as http.DefaultServeMux")
	}
	return &handler{m, next}
}

type handler struct {
	m    *Middleware
	next http.Handler
}

func (h *handler) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	if h.m.single != nil {
		h.m.single(h.m, w, request, h.next)
		return
	}
	h.m.serveAll(w, request, h.next)
}

func (m *Middleware) serveAll(w http.ResponseWriter, request *http.Request, next http.Handler) {
	var v result
	var settlement admission.Settlement
	var room [admission.MaxLimits]quota
	quotas := room[:len(m.limiters)]
	if m.begin(request, &v) {
		settlement = m.control.Decide(request.Context(), request, &v, quotas)
	}
	m.carryOut(w, request, next, &v, quotas, settlement)
}

// begin compares the request's address with Options.Deny and Options.Allow, and finds the request's
// cost. If it returns false, the limits do not decide, and result has the reason.
func (m *Middleware) begin(request *http.Request, result *result) bool {
	if m.deny != nil || m.allow != nil {
		addr := m.addr.Addr(request)
		switch {
		case m.deny != nil && !addr.IsValid():
			result.Reason = limits.NoKey
			return false
		case m.deny.Contains(addr):
			result.Reason = limits.Denied
			return false
		case m.allow.Contains(addr):
			result.Reason = limits.Exempt
			return false
		}
	}
	return m.control.Begin(request.Context(), request, result)
}

// carryOut passes a request on to next, or refuses it. The settlement, if any, is due when next is
// done. quotas belong to several limits, or are nil. They are apart from the result, which
// OnVerdict may keep, so that they stay on the stack.
func (m *Middleware) carryOut(
	w http.ResponseWriter, request *http.Request, next http.Handler, result *result, quotas []quota, settlement admission.Settlement,
) {
	if settlement != nil {
		m.serveHeld(w, request, next, result, quotas, settlement)
		return
	}
	if request = m.tellVerdict(w, request, result, quotas); request != nil {
		next.ServeHTTP(w, request)
	}
}

// serveHeld is carryOut for a request whose units are held. They are settled when next is done,
// hijacked or not. Without a Charge, or if a function of the options panics before next is called,
// only units in use come back. If a fleet loses them meanwhile, the context of the request ends
// with limits.ErrLost.
func (m *Middleware) serveHeld(
	w http.ResponseWriter, request *http.Request, next http.Handler, result *result, quotas []quota, settlement admission.Settlement,
) {
	// c is nil unless next is called and charged.
	var c *recorder
	defer func() {
		if c != nil && c.stream != nil {
			defer c.stream.cancel(nil)
		}
		// The request's context may have ended.
		if ctx := context.Background(); c == nil {
			m.control.Release(ctx, settlement)
		} else {
			m.control.Settle(ctx, settlement, request, m.servedBy(c, request))
		}
	}()
	request = m.tellVerdict(w, request, result, quotas)
	if all := m.control.Lost(settlement); len(all) != 0 {
		ctx, end := context.WithCancelCause(request.Context())
		defer end(nil)
		admission.EndWhenLost(ctx, end, all)
		request = request.WithContext(ctx)
	}
	if !m.control.Charges() {
		next.ServeHTTP(w, request)
		return
	}
	record := &recorder{ResponseWriter: w}
	if m.control.Streams() && request.Method != http.MethodHead {
		record.stream, request = newStream(request)
		record.stream.pays = m.control.Stream(request.Context(), request, settlement)
		settlement = record.stream.pays
	}
	c = record
	// The handler counts as panicked until it has returned.
	c.served.Panicked = true
	next.ServeHTTP(c.writer(), request)
	c.served.Panicked = false
}

// servedBy returns how a request was answered.
func (m *Middleware) servedBy(recorder *recorder, request *http.Request) Served {
	served := recorder.served
	if served.Status == 0 && !served.Panicked && !served.Hijacked {
		// The server writes the status if the handler wrote nothing.
		served.Status = http.StatusOK
		m.logUnseen(request)
	}
	if request.Method == http.MethodHead {
		// The server drops the body.
		served.Bytes = 0
	}
	return served
}

// tellVerdict reports a verdict, and tells it to the client. tellVerdict returns the request to
// pass on, or nil for a refused request.
func (m *Middleware) tellVerdict(w http.ResponseWriter, request *http.Request, result *result, quotas []quota) *http.Request {
	shadow := m.control.Shadow()
	informs := m.inform != "" && result.Reason == limits.OverLimit
	result.Shadow = shadow || informs
	m.counters.Count(&result.Verdict)
	if m.options.OnVerdict != nil {
		m.options.OnVerdict(request, result.Verdict)
	}
	if m.options.Logger != nil && !result.Reason.Passes() {
		m.logRefused(request, result)
	}
	if result.Refused() {
		m.refuse(w, request, result, quotas)
		return nil
	}
	if (result.Reason == limits.Admitted || informs) && !shadow {
		m.tell(w, result, quotas)
	}
	if informs || m.inform != "" && request.Header[m.inform] != nil {
		request = m.informed(request, result, informs)
	}
	return request
}

// informed returns a copy of a request with the field Options.Inform, or without it.
func (m *Middleware) informed(request *http.Request, result *result, over bool) *http.Request {
	request = request.WithContext(request.Context())
	request.Header = maps.Clone(request.Header)
	switch {
	case !over:
		delete(request.Header, m.inform)
	case result.Provenance.Exact():
		request.Header[m.inform] = []string{m.fields.Standing(result.Binding, result.Decision.Remaining, result.RetryAfter)}
	default:
		request.Header[m.inform] = []string{m.fields.Quoted()[result.Binding]}
	}
	return request
}

// tell sets the header fields of a request that passes.
func (m *Middleware) tell(w http.ResponseWriter, result *result, quotas []quota) {
	if m.fields.headers != NoHeaders {
		m.fields.write(w.Header(), result, quotas, result.Provenance.Exact() && !m.fields.Hides(result.Limit))
	}
	if m.options.Header != nil {
		m.options.Header(w.Header(), result.Verdict)
	}
}

func (m *Middleware) refuse(w http.ResponseWriter, request *http.Request, result *result, quotas []quota) {
	header := w.Header()
	if len(header) > 0 {
		// Fields that an outer handler set for another body.
		for _, field := range &ofAnotherBody {
			delete(header, field)
		}
	}
	retry := ""
	if result.Reason == limits.OverLimit {
		m.fields.write(header, result, quotas, result.Provenance.Exact() && !m.fields.Hides(result.Limit))
		if result.Provenance.TellsRetry() {
			retry = strconv.FormatInt(retrySeconds(result.RetryAfter), 10)
		}
	}
	if m.fields.headers&RetryHeaders != 0 {
		writeRetry(header, result, m.options.Spread > 0)
	}
	m.answer(w, request, result, retry)
}
