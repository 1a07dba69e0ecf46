package httplimit

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"github.com/ral-limiter/ral/internal/adapter/admission"
	"github.com/ral-limiter/ral/internal/adapter/clientaddr"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// HeaderSet selects the header fields that tell clients how they stand. They are set before
// the handler runs, which may change them. They are set on admitted requests and on those
// answered with 429; a 429 has Retry-After in any case.
type HeaderSet int

const (
	// RateLimitHeaders: RateLimit-Policy and RateLimit as in
	// draft-ietf-httpapi-ratelimit-headers-11, structured fields (RFC 9651) that name the
	// limit:
	//
	//	RateLimit-Policy: "default";q=100;w=10
	//	RateLimit: "default";r=97;t=1
	//
	// q is Decision.Limit, or under a Bursty or WarmingUp the most that Decision.Remaining
	// can be. w is the time in which q units pass, by the policy's Window, in seconds,
	// rounded up, and left out if it is shorter than one second. r is what remains. t is the seconds until the key is as
	// good as new or, on a refusal, until the request may be made again. The default.
	RateLimitHeaders HeaderSet = iota
	// LegacyHeaders: RateLimit-Limit, RateLimit-Remaining and RateLimit-Reset, in seconds
	// from now, as in versions of that draft up to 06.
	LegacyHeaders
	// XRateLimitHeaders: X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset, in
	// seconds of Unix time, as GitHub and others use them.
	XRateLimitHeaders
	// NoHeaders: none.
	NoHeaders
)

// Options configures a [Middleware]. The zero Options is a good choice.
type Options struct {
	// Headers selects the header fields that tell clients how they stand.
	Headers HeaderSet

	// Name is the name of limits that have none of their own. It must be printable ASCII
	// of at most 64 bytes. Nested middlewares should have different names, as clients are
	// told about all of them. The default is "default".
	Name string

	// WaitUpTo delays a request that has no room now, instead of refusing it, if it can be
	// admitted within that time. Requests that wait for a key stand in the engine's line
	// and are served in the order of arrival: a request that arrives as a window opens
	// stands behind them. At most engine.Config.MaxWaiting requests wait for a key. Under
	// several limits a request stands in the line of the key that decides, as in
	// engine.AcquireAll. The default is 0, not to wait.
	//
	// A wait ends with the request's context, and a request whose client leaves takes
	// nothing. Over HTTP/2 the context ends when the client leaves. Over HTTP/1 net/http
	// notices that only for a request without a body, and only until another byte arrives
	// on the connection. Any other request of HTTP/1 waits on after its client has left,
	// and takes its turn. So a client can keep up to MaxWaiting places in its key's line
	// at little cost; keep WaitUpTo short.
	//
	// A policy.Queue delays requests by itself, up to its own length. WaitUpTo, if not 0,
	// also refuses a request whose turn comes later than that. Under several limits a
	// queue refuses a request that would have to wait, unless WaitUpTo is set. Whether the
	// limit is a queue is asked for each request, so SetPolicy and engine.PolicyFor may
	// change it.
	WaitUpTo time.Duration

	// Cost returns the units that a request takes. It runs once for each request. If it is
	// nil every request takes 1. A request that costs 0 passes, unless it has no key or is
	// Misconfigured. A request that costs more than the limit allows at once is
	// NeverAdmitted. Less than 0 is an error of the program,
	// and the request is Misconfigured: r.ContentLength, for one, is -1 if it is unknown.
	Cost func(r *http.Request) int64

	// Charge returns the units that an admitted request should have taken. It runs when
	// the handler is done: the difference to what was taken is given back or charged, even
	// if the limit is exceeded. It also runs if the handler panics, and the panic then goes
	// on. The answer may still be on its way to the client.
	//
	// Units are given back to the window that they were taken from, or nowhere if that is
	// over: a handler that takes longer than a limit's window gives nothing back to the
	// next one. They come back on the terms of engine.Reservation.Keep. If engine.PolicyFor
	// chose a limit that does not count in windows, nothing comes back once other requests
	// of the key have taken.
	//
	// A charge is made when the handler is done. A key that owes is refused until the debt
	// has drained, however long that takes. Returning math.MaxInt64 locks the key for years
	// under a bucket, and until its windows have passed under a limit that counts in windows.
	//
	// To count failed log-ins only, return 1 if served.Status is 401 and 0 otherwise. Each
	// attempt takes 1 first, so that concurrent attempts count as well.
	//
	// With Charge the handler's ResponseWriter is a wrapper. It implements Flusher,
	// Hijacker and Pusher if the wrapped one does, and http.ResponseController sees through
	// it. Without Charge nothing is wrapped.
	Charge func(r *http.Request, served Served) int64

	// Allow lists prefixes whose requests pass uncounted; Deny lists those answered with
	// 403. Deny wins. Both are compared with the address that ClientAddr finds, as it is
	// and uncut, before any key is looked for. With Deny, a request without an address is
	// answered with 400.
	Allow, Deny []netip.Prefix

	// ClientAddr finds the address for Allow, Deny and Logger. The default is the
	// connection's address. Behind a proxy that is the proxy's: allowing it would allow
	// every client.
	ClientAddr *ClientAddr

	// Shadow decides, counts and reports, but refuses and delays nothing and sets no header
	// fields. A request that would be delayed takes its units and is reported as Admitted,
	// with the delay in Waited; MaxWaiting is ignored. Under several limits it is reported
	// as OverLimit.
	Shadow bool

	// Refuse writes the answer to a refused request, in place of the answer described at
	// [Middleware.Handler]. The header fields are set by then, with Retry-After if there is
	// one. [Status] of its Reason is the status to send.
	Refuse func(w http.ResponseWriter, r *http.Request, verdict limits.Verdict)

	// OnVerdict, if not nil, is called with the decision about each request before it is
	// carried out, for counters and traces. It runs on the request's goroutine.
	OnVerdict func(r *http.Request, verdict limits.Verdict)

	// Logger, if not nil, receives a line of level Info for refused requests, or for those
	// that would be refused without Shadow. At most 10 lines are written each second; the
	// next line tells how many were left out. A line has the client's address, and the
	// first 12 hexadecimal digits of the key's SHA-256 hash, as keys may be secret. The key
	// function is called once more for it. The first Misconfigured request of each limit
	// also gets a line of level Error.
	Logger *slog.Logger
}

func (o *Options) validate() (allow, deny *clientaddr.Prefixes, err error) {
	const of = "httplimit.Options"
	bad := func(field string, value any, want string) error {
		return &policy.FieldError{Of: of, Field: field, Value: value, Want: want}
	}
	if allow, err = clientaddr.NewPrefixes(of, "Allow", o.Allow); err == nil {
		deny, err = clientaddr.NewPrefixes(of, "Deny", o.Deny)
	}
	wrong := admission.WrongName(o.Name)
	switch {
	case err != nil:
	case wrong != "":
		err = bad("Name", fmt.Sprintf("%.80q", o.Name), wrong)
	case o.Headers < RateLimitHeaders || o.Headers > NoHeaders:
		err = bad("Headers", int(o.Headers), "RateLimitHeaders, LegacyHeaders, XRateLimitHeaders or NoHeaders")
	case o.WaitUpTo < 0:
		err = bad("WaitUpTo", o.WaitUpTo, "a positive duration, or 0 not to wait")
	case o.ClientAddr != nil && !o.ClientAddr.of.Valid():
		err = bad("ClientAddr", "a zero ClientAddr", "the result of NewClientAddr, or nil for the connection's address")
	}
	return allow, deny, err
}
