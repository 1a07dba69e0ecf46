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

// HeaderSet is a set of header fields that tell clients how they stand, such as RateLimitHeaders |
// RetryHeaders. The fields are set before the handler runs, and the handler may change them.
// Answers with 429 also have them, and always have Retry-After. A HeaderSet of 0 means
// RateLimitHeaders.
type HeaderSet int

const (
	// RateLimitHeaders: RateLimit-Policy and RateLimit as in
	// draft-ietf-httpapi-ratelimit-headers-11, structured fields (RFC 9651) that name the limit:
	//
	//	RateLimit-Policy: "default";q=100;w=10
	//	RateLimit: "default";r=97;t=1
	//
	// q is Decision.Limit, or under a Bursty or WarmingUp the most that Decision.Remaining can be.
	// w is the policy's Window for q units in seconds, rounded up; it is left out below a second. A
	// policy.InFlight has qu="concurrent-requests" instead of w, and its t is a guess: see Options.RetryGuess.
	// r is the remaining quota. t is the seconds until the key is as good as new, or until a
	// refused request may be made again.
	RateLimitHeaders HeaderSet = 1 << iota
	// LegacyHeaders: RateLimit-Limit, -Remaining and -Reset, in seconds from now (draft up to 06).
	LegacyHeaders
	// XRateLimitHeaders: X-RateLimit-Limit, -Remaining and -Reset, in Unix seconds (GitHub).
	XRateLimitHeaders
	// SpringHeaders: X-RateLimit-Remaining, -Burst-Capacity, -Requested-Tokens, which is the request's
	// cost, and -Replenish-Rate in units a second (Spring Cloud Gateway). A rate may have a fraction, in
	// millionths.
	SpringHeaders
	// RetryHeaders, of refusals only, for clients such as the SDKs of OpenAI and Anthropic. With
	// Options.Spread they also have retry-after-ms, the time of Retry-After in milliseconds, rounded
	// up. Turns are then exact to the millisecond. x-should-retry is false if another try is refused
	// too: Denied, NoKey, NeverAdmitted and Misconfigured.
	RetryHeaders
	// NoHeaders sets none of these fields. It must not be combined with other sets.
	NoHeaders

	everyHeader = NoHeaders - 1
)

// Options configures a [Middleware]. The zero Options is a good choice.
type Options struct {
	// Headers selects the header fields that tell clients how they stand.
	Headers HeaderSet

	// Header, if not nil, may add, rename or remove the fields of an answer. Header runs after
	// these are set, on the request's goroutine, for requests that are Admitted or refused, unless
	// Shadow hides the limits from clients.
	Header func(h http.Header, verdict limits.Verdict)

	// Name is the name of limits that have no Limit.Name: printable ASCII of at most 64 bytes.
	// Nested middlewares should differ, as clients see all names. The default is "default".
	Name string

	// WaitUpTo, if not 0, delays a request that has no room now but can be admitted within that
	// time. At most engine.Config.MaxWaiting requests wait for a key, in the order of arrival. With
	// several limits the request waits for the key that refuses longest, as in engine.AcquireAll.
	//
	// A wait ends with the request's context, and takes nothing if the client leaves. Over HTTP/1
	// net/http notices this only for a request without a body, and only until another byte arrives
	// on the connection. Any other request of HTTP/1 waits on and takes its turn. So a client can
	// keep up to MaxWaiting places in its key's line at little cost: keep WaitUpTo short.
	//
	// A policy.Queue, also by SetPolicy or engine.PolicyFor, delays requests by itself, up to its
	// own length. WaitUpTo, if not 0, also refuses a request whose turn comes later. Under several
	// limits a queue refuses a request that would have to wait, unless WaitUpTo is set.
	WaitUpTo time.Duration

	// Spread, if not 0, tells each refused request of a key a turn of its own. Otherwise all are told
	// the earliest, come back together, and nearly all are refused again. Turns follow each other at
	// the limit's pace, up to Spread after the earliest; further requests are told the last.
	//
	// A turn reserves nothing, and a request may be admitted sooner. A turn is told in Retry-After,
	// in the other fields and in Verdict.RetryAfter. Under several limits a turn is one of all that
	// refuse, and their Key, Cost and PolicyFor run again. Outages, blocks of a fleet, Inform and
	// limits with Shadow have no turns. The turns of a thousand keys are known, in 32 KiB; the latest
	// are kept. Some clients ignore more than a minute. See "The herd" in docs/httplimit.md.
	Spread time.Duration

	// RetryGuess bounds the time to wait that is told to a request refused by a limit of units in use
	// (policy.InFlight). The limit knows only when the units end by themselves, and any request that
	// ends makes room. Each refused request is told a time between half of RetryGuess and all of it,
	// unless the limit has room sooner. This time is no promise, and Verdict.RetryAfter has it too.
	// Such a limit has no turns of Spread. 0 is a second.
	RetryGuess time.Duration

	// Cost returns the units that a request takes, once for each request. If it is nil, every
	// request takes 1. A cost of 0 passes, unless the key is blocked, or the request has no key or is
	// Misconfigured. A cost below 0, as r.ContentLength may be, is refused as limits.Misconfigured,
	// and a cost above what the limit ever allows as limits.NeverAdmitted.
	Cost func(r *http.Request) int64

	// Charge returns the units that an admitted request should have taken. Charge runs when the
	// handler returns or panics; the panic then goes on. The answer may still be on its way to the
	// client. The difference to the cost is given back, or charged even if the limit is exceeded.
	//
	// To count failed log-ins only, return 1 if served.Status is 401 and 0 otherwise. Each attempt
	// takes 1 first, so concurrent attempts count.
	//
	// Warning: behind a router that turns a returned error into an answer later, as echo, gin and fiber
	// do, Charge takes the status for 200, and such log-ins are unlimited. The recipes in
	// docs/httplimit.md show Charge the status. The first request without an answer is logged.
	//
	// Charge does not run for a request of which no limit holds units: one that is refused or
	// exempt, or that passes above its limit by Shadow or Inform. A Cost of 0 holds 0 units, so
	// Charge runs then.
	//
	// Units are given back to the window that they were taken from, or nowhere if that window is
	// over, on the terms of engine.Reservation.Keep. If engine.PolicyFor chose a limit that does
	// not count in windows, nothing comes back once other requests of the key have taken. A key
	// that owes is refused until the debt has drained. Returning math.MaxInt64 charges as much as
	// one call may: see engine.Engine.Refund. That locks the key for about 31 days under a bucket,
	// or as long as a full bucket takes to drain if longer, and until its windows have passed under
	// a limit that counts in windows.
	//
	// The handler's ResponseWriter is a wrapper only with a Charge, or with a Limit.Charge or
	// Limit.Stream. The wrapper implements Flusher, Hijacker and Pusher if the wrapped does, and
	// http.ResponseController sees through it.
	Charge func(r *http.Request, served Served) int64

	// Allow lists prefixes whose requests pass uncounted; Deny lists those answered with 403. Deny
	// wins. Both are compared with the uncut address that ClientAddr finds, before any key is
	// looked for. With Deny, a request without an address is answered with 400.
	Allow, Deny []netip.Prefix

	// ClientAddr finds the address for Allow, Deny and Logger. The default is the connection's
	// address; behind a proxy, allowing that would allow every client.
	ClientAddr *ClientAddr

	// Shadow decides, counts and reports, but refuses and delays nothing and sets no header fields.
	// A request that would be delayed takes its units and is Admitted, with the delay in Waited;
	// MaxWaiting is ignored. Under several limits it is reported as OverLimit.
	Shadow bool

	// Inform, if not "", lets a request that is OverLimit pass, and tells the next handler by a
	// request field of that name, as it may answer at less cost. The value is formed like RateLimit:
	// the limit's name, and t unless it is a guess. The request takes nothing, and its Verdict has
	// Shadow. Clients cannot send the field: the middleware removes the field from other requests.
	// Under Options.Shadow the handler is told, too.
	Inform string

	// Refuse, if not nil, answers a refused request. All header fields, also Retry-After, are set
	// already, except the body's Content-Type and Content-Length. [Status] of the
	// verdict's Reason is the status to send.
	Refuse func(w http.ResponseWriter, r *http.Request, verdict limits.Verdict)

	// OnVerdict, if not nil, is called on the request's goroutine before a decision takes effect.
	OnVerdict func(r *http.Request, verdict limits.Verdict)

	// Logger, if not nil, receives a line of level Info for requests that are refused, or would be
	// without Shadow. It writes at most 10 lines a second; the next line counts those left out. A
	// line has the client's address, and the first 12 hexadecimal digits of the key's SHA-256 hash.
	// The first Misconfigured request of each limit gets a line of level Error, and with Charge the
	// first whose handler wrote no answer a line of level Warn.
	Logger *slog.Logger
}

func (o *Options) validate() (allow, deny *clientaddr.Prefixes, err error) {
	const owner = "httplimit.Options"
	bad := func(field string, value any, want string) error {
		return &policy.FieldError{Of: owner, Field: field, Value: value, Want: want}
	}
	if allow, err = clientaddr.NewPrefixes(owner, "Allow", o.Allow); err == nil {
		deny, err = clientaddr.NewPrefixes(owner, "Deny", o.Deny)
	}
	if err == nil {
		err = admission.CheckOptions(o.Name, o.WaitUpTo, o.Spread, o.RetryGuess, o.ClientAddr != nil && !o.ClientAddr.finder.Valid(), bad)
	}
	switch {
	case err != nil:
	case o.Headers != NoHeaders && o.Headers&^everyHeader != 0:
		err = bad("Headers", int(o.Headers), "a set of RateLimitHeaders, LegacyHeaders, XRateLimitHeaders, SpringHeaders and RetryHeaders, or NoHeaders alone")
	case o.Inform != "" && !clientaddr.IsFree(o.Inform):
		err = bad("Inform", fmt.Sprintf("%.80q", o.Inform), `the name of a header field that HTTP itself does not need, or ""`)
	}
	return allow, deny, err
}
