package httplimit

import (
	"cmp"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/policy"
)

// maxLimits is how many limits a request may have.
const maxLimits = 8

// Middleware limits requests. Call [New] or [NewAll] to make one; the zero value is of no
// use. Its methods may be called by any number of goroutines. It holds nothing that must
// be closed; its engines do.
type Middleware struct {
	options  Options
	gates    []gate
	addr     *ClientAddr
	allow    *prefixes
	deny     *prefixes
	fields   writer
	log      lines
	counters counters
}

// New returns a middleware that holds each key to the limiter's limit. The error, if any,
// is a *policy.FieldError that names the field.
//
// K is the type of the limiter's keys. With netip.Addr nothing is formatted or allocated
// to look a client up.
func New[K comparable](limiter *engine.Engine[K], key func(r *http.Request) K, options Options) (*Middleware, error) {
	parameter := func(_ int, field string) string { return strings.ToLower(field) }
	return assemble("httplimit.New", parameter, options, Limit[K]{Limiter: limiter, Key: key})
}

// NewAll returns a middleware that holds each request to several limits, up to 8: it
// passes if all admit it, and then counts for all; one that is refused counts for none, as
// with engine.TakeAll. The limit that decides is the one that clients are told of in
// RateLimit; RateLimit-Policy has all that apply. The error, if any, is a
// *policy.FieldError that names the field.
func NewAll(options Options, limits ...AnyLimit) (*Middleware, error) {
	element := func(i int, field string) string { return fmt.Sprintf("limits[%d].%s", i, field) }
	return assemble("httplimit.NewAll", element, options, limits...)
}

// assemble makes a middleware. name is what a field of a limit is called in an error.
func assemble(of string, name func(i int, field string) string, options Options, limits ...AnyLimit) (*Middleware, error) {
	bad := func(field string, value any, want string) error {
		return &policy.FieldError{Of: of, Field: field, Value: value, Want: want}
	}
	allow, deny, err := options.validate()
	switch {
	case err != nil:
		return nil, err
	case len(limits) == 0:
		return nil, bad("limits", "empty", "1 to 8 limits")
	case len(limits) > maxLimits:
		return nil, bad("limits", fmt.Sprintf("%d long", len(limits)), "1 to 8 limits")
	}
	m := &Middleware{
		options: options,
		addr:    options.ClientAddr,
		allow:   allow,
		deny:    deny,
		fields:  writer{headers: options.Headers},
		log:     lines{to: options.Logger, epoch: time.Now()},
	}
	if m.addr == nil {
		m.addr = connection
	}
	common := cmp.Or(options.Name, "default")
	names := map[string]bool{}
	for i, limit := range limits {
		if v := reflect.ValueOf(limit); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
			return nil, bad(fmt.Sprintf("limits[%d]", i), "nil", "a httplimit.Limit")
		}
		g, err := limit.bind(common, func(field string, value any, want string) error {
			return bad(name(i, field), value, want)
		})
		if err != nil {
			return nil, err
		}
		title := g.title()
		if names[title] {
			return nil, bad(name(i, "Name"), fmt.Sprintf("%q", title), "a name that no other limit has")
		}
		names[title] = true
		m.gates = append(m.gates, g)
		m.fields.quoted = append(m.fields.quoted, string(appendString(nil, title)))
	}
	return m, nil
}

// Must returns m, and panics if err is not nil. It is for settings written down in the
// program; those that come from outside deserve their error handled.
func Must(m *Middleware, err error) *Middleware {
	if err != nil {
		panic(err)
	}
	return m
}

// Handler returns a handler that passes on to next the requests that are admitted. Those
// that are not are answered with 429 if a limit refuses them, 403 if Options.Deny does,
// 400 if they have no key, and 503 if their context ended while they waited; with problem
// details (RFC 9457) or, for clients that would rather have it, text.
//
// It may be called for any number of handlers, which then share the limits.
func (m *Middleware) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { m.serve(w, r, next) })
}

func (m *Middleware) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	v, held := m.decide(r)
	v.Shadow = m.options.Shadow
	m.counters.count(&v)
	if m.options.OnVerdict != nil {
		m.options.OnVerdict(r, v.Verdict)
	}
	if !v.passes() && m.log.to != nil {
		m.logRefused(r, &v)
	}
	if (v.Reason == Admitted || v.Reason == OverLimit) && !v.Shadow {
		m.fields.write(w.Header(), &v)
	}
	switch {
	case v.Refused():
		m.refuse(w, r, &v)
	case held == nil:
		next.ServeHTTP(w, r)
	default:
		m.charged(w, r, next, v.Cost, held)
	}
}

// decide decides, and sets nothing yet. held is what is to be set right when the handler
// is done.
func (m *Middleware) decide(r *http.Request) (v ruling, held charge) {
	if m.deny != nil || m.allow != nil {
		addr := m.addr.Addr(r)
		switch {
		case m.deny != nil && !addr.IsValid():
			v.Reason = Keyless
			return v, nil
		case m.deny.contains(addr):
			v.Reason = Denied
			return v, nil
		case m.allow.contains(addr):
			v.Reason = Exempt
			return v, nil
		}
	}
	n := int64(1)
	if m.options.Cost != nil {
		n = m.options.Cost(r)
	}
	if len(m.gates) > 1 {
		return m.together(r, n)
	}
	return m.gates[0].alone(r, n, m.options.Charge != nil, &m.options)
}

// refuse answers a request that is refused.
func (m *Middleware) refuse(w http.ResponseWriter, r *http.Request, v *ruling) {
	if v.Reason == OverLimit {
		if n, ok := retrySeconds(v.RetryAfter); ok {
			w.Header()[retryAfterField] = []string{strconv.FormatInt(n, 10)}
		}
	}
	if m.options.Refuse != nil {
		m.options.Refuse(w, r, v.Verdict)
		return
	}
	m.answer(w, r, v)
}

// charged serves a request whose cost is set right when the handler is done, however it
// ends.
func (m *Middleware) charged(w http.ResponseWriter, r *http.Request, next http.Handler, cost int64, held charge) {
	c := &recorder{ResponseWriter: w}
	c.served.Panicked = true // until the handler has returned
	silent := r.Method == http.MethodHead
	defer func() {
		served := c.served
		if served.Status == 0 && !served.Panicked && !served.Hijacked {
			served.Status = http.StatusOK // what the server writes for who wrote nothing
		}
		if silent {
			served.Bytes = 0 // the server takes them, and sends none
		}
		held.settle(cost, max(0, m.options.Charge(r, served)))
	}()
	next.ServeHTTP(c.writer(), r)
	c.served.Panicked = false
}
