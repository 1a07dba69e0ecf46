package httplimit

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// HeaderSet says which header fields tell clients how they stand. All are set before the
// handler runs, who may change them. Retry-After is set on refusals in any case.
type HeaderSet int

const (
	// RateLimitHeaders: RateLimit-Policy and RateLimit as in
	// draft-ietf-httpapi-ratelimit-headers-11, structured fields (RFC 9651) that name the
	// limit:
	//
	//	RateLimit-Policy: "default";q=100;w=10
	//	RateLimit: "default";r=97;t=1
	//
	// q is Decision.Limit and w the policy's Window in seconds, rounded up, left out where
	// it is shorter than one. r is what remains, t the seconds until the key is as good as
	// new or, on a refusal, until the request may be made again. The default.
	RateLimitHeaders HeaderSet = iota
	// LegacyHeaders: RateLimit-Limit, RateLimit-Remaining and RateLimit-Reset, in seconds
	// from now, as in that draft up to its number 06.
	LegacyHeaders
	// XRateLimitHeaders: X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset, in
	// seconds of Unix time, as GitHub and others have them.
	XRateLimitHeaders
	// NoHeaders: none.
	NoHeaders
)

// WhenNoKey says what becomes of a request for which a limit's key function finds no key.
type WhenNoKey int

const (
	// Refuse: it is answered with 400. The default.
	Refuse WhenNoKey = iota
	// Skip: the limit does not apply to it. Others may.
	Skip
	// Share: all such requests together are one client.
	Share
)

// Options is what a [Middleware] does besides limiting. The zero Options is a good choice.
type Options struct {
	// Headers says how clients are told how they stand.
	Headers HeaderSet

	// Name is that of limits which have none of their own. It must be printable ASCII,
	// and 64 bytes at the most. Middlewares around each other should have different ones,
	// as clients are told of all. The default is "default".
	Name string

	// WaitUpTo delays a request that comes too early, instead of refusing it, if it can
	// be admitted within that time. Those who wait for a key stand in the engine's line,
	// and are served in the order in which they came: who comes as a window opens stands
	// behind them. At most engine.Config.MaxWaiting wait for a key. Under several limits
	// a request stands in the line of the key that decides, as engine.AcquireAll has it.
	// The default is 0, not to wait.
	//
	// A wait ends with the request's context: a client that leaves takes nothing. But
	// net/http does not notice that a client of HTTP/1 has left before the request's body
	// is read, so that one whose request has a body waits on, and has its turn.
	//
	// A policy.Queue delays requests by itself, as long as its queue is; WaitUpTo, if not
	// 0, refuses what has its turn later. Where there are several limits, and no
	// WaitUpTo, it refuses who would have to wait.
	WaitUpTo time.Duration

	// Cost returns how many units a request takes. It runs once a request. nil is 1 for
	// each. 0 passes; less than that, and more than the limit ever allows, is refused
	// without a Retry-After.
	Cost func(r *http.Request) int64

	// Charge returns how many units an admitted request should have taken, when the
	// handler is done: what was taken too much is given back, what was taken too little
	// is charged, even if that exceeds the limit. It runs also if the handler panics,
	// whose panic then goes on, and while the handler's answer may still be on its way.
	//
	// What is given back goes where it was taken from, and is not given back if that is
	// over: a handler that takes longer than a limit's window gives nothing back to the
	// next, whoever has taken there. Nor is it if nobody can tell any more where it is: see
	// engine.Reservation.Keep. Under engine.PolicyFor that is so once others have taken, but
	// under limits that count in windows.
	//
	// What is charged is charged when the handler is done, and a key that owes is refused
	// until that has drained, however long that takes: return no more than you mean. One
	// that returned math.MaxInt64 would lock the key for good.
	//
	// To count only failed log-ins, return 1 if served.Status is 401 and else 0: each
	// attempt takes 1 first, so that those under way count as well.
	//
	// Only with Charge the handler's ResponseWriter is a wrapper, which has the Flusher,
	// Hijacker and Pusher of the one that it wraps and which http.ResponseController sees
	// through.
	Charge func(r *http.Request, served Served) int64

	// Allow and Deny are where requests come from that are let pass without being
	// counted, and that are answered with 403. They go by the address that ClientAddr
	// finds, whole, before anything else is looked at, whatever a limit's key is. Who is
	// in both is denied. Where there is Deny, a request whose client cannot be told is
	// answered with 400.
	Allow, Deny []netip.Prefix

	// ClientAddr finds the address for Allow, Deny and Logger. nil is the connection's:
	// behind proxies that is the proxy's, so that allowing it allows everybody.
	ClientAddr *ClientAddr

	// Shadow decides, counts and reports, but refuses and delays nothing and sets no
	// header fields. Who would have been delayed has taken his turn, and is reported as
	// Admitted, with the time that he would have Waited; the engine's MaxWaiting is not
	// looked at. Under several limits he is reported as OverLimit.
	Shadow bool

	// Refuse writes the answer to a request that is refused, in place of the one
	// described at [Middleware.Handler]. The header fields are set by then, Retry-After
	// among them; verdict.Status is the status that it should have.
	Refuse func(w http.ResponseWriter, r *http.Request, verdict Verdict)

	// OnVerdict, if not nil, is told what was decided about each request, before that is
	// carried out: for counters and traces. It runs on the request's goroutine.
	OnVerdict func(r *http.Request, verdict Verdict)

	// Logger, if not nil, gets a line of level Info for requests that are refused, or
	// would be but for Shadow. There are 10 a second at the most, so that a flood of
	// requests is not one of lines; the next tells how many were left out. The client is
	// there by its address, and the key by the first 12 hexadecimal digits of its SHA-256
	// hash, as it may be a secret: for that the key function is called once more.
	Logger *slog.Logger
}

func (o *Options) validate() (allow, deny *prefixes, err error) {
	const of = "httplimit.Options"
	bad := func(field string, value any, want string) error {
		return &policy.FieldError{Of: of, Field: field, Value: value, Want: want}
	}
	if allow, err = newPrefixes(of, "Allow", o.Allow); err == nil {
		deny, err = newPrefixes(of, "Deny", o.Deny)
	}
	wrong := wrongName(o.Name)
	switch {
	case err != nil:
	case wrong != "":
		err = bad("Name", fmt.Sprintf("%.80q", o.Name), wrong)
	case o.Headers < RateLimitHeaders || o.Headers > NoHeaders:
		err = bad("Headers", int(o.Headers), "RateLimitHeaders, LegacyHeaders, XRateLimitHeaders or NoHeaders")
	case o.WaitUpTo < 0:
		err = bad("WaitUpTo", o.WaitUpTo, "a positive duration, or 0 not to wait")
	case o.ClientAddr != nil && o.ClientAddr.last == nil:
		err = bad("ClientAddr", "a zero ClientAddr", "one that NewClientAddr made, or nil for the connection's address")
	}
	return allow, deny, err
}
