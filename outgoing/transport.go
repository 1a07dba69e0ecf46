package outgoing

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/outgoing/internal/answer"
	"github.com/ral-limiter/ral/policy"
)

// Options configures a [Transport]. The zero Options is ready to use.
type Options struct {
	// Base sends the requests. The default is http.DefaultTransport.
	Base http.RoundTripper

	// Retries is how often a refused request is sent again, at most. Each retry waits for the back-off
	// and then for its turn in line. Repeatable must allow the retry, and the request's body must be absent
	// or have GetBody. The default is 0, never. A request is not sent again after a final refusal, or a
	// refusal with Answer.NoRetry.
	//
	// RoundTrip returns the refusal if the next turn comes later than the context or Config.Patience
	// allows, or if the refusal's body is longer than 64 KiB or takes over a second.
	Retries int

	// Repeatable reports whether a request may be sent more than once. The default is net/http's
	// GET, HEAD, OPTIONS and TRACE, also PUT and DELETE, and any with the field Idempotency-Key or
	// X-Idempotency-Key.
	Repeatable func(r *http.Request) bool

	// Cost returns the units that a request takes of its key's limits, as in [Line.Wait]. The default
	// is one call and no other units. Cost is called once for a request that is repeated.
	Cost func(r *http.Request) []int64

	// Used lists, for each cost in order, the names of the numbers in the response's JSON or events that
	// add up to the true cost: {nil, {"total_tokens"}}. [Turn.Settle] then corrects the cost. Each is a
	// name and not a path, and the last number with that name counts. The numbers are read while the
	// caller reads the body, which is not kept. If no such number is found, the cost stays.
	Used [][]string

	// Bucket returns the name of the limit that a served response counts in, up to 256 bytes, or "".
	// Keys with the same name share the limit: for Discord it is X-RateLimit-Bucket with the
	// request's channel or guild. The default is a limit for each key.
	Bucket func(resp *http.Response) string

	// Answer, if not nil, decides first whether a response refuses its call, and when the next call
	// may be sent. If known is false, the rules of [AnswerOf] decide. Otherwise a RetryAfter of 0 is
	// read from the header fields, and so are the limits if the answer has none. With RetryAfter
	// policy.Never the refusal is final. [GitHub], [Anthropic], [Shopify] and [Slack] are
	// such functions. Answer runs on the request's goroutine and must leave the body whole, as
	// [PeekJSON] does.
	Answer func(resp *http.Response) (a Answer, known bool)
}

// Transport is an http.RoundTripper. Its requests wait their turn in a [Line] and obey the answers.
// A Transport changes no request, and is safe for concurrent use; several Transports may share a
// Line.
type Transport[K comparable] struct {
	line    *Line[K]
	key     func(r *http.Request) K
	options Options
	buckets buckets[K]
}

// NewTransport returns a Transport over a line. key returns the key of a request, such as [ByHost],
// and must not change the request. An error is a *policy.FieldError that names the field.
func NewTransport[K comparable](line *Line[K], key func(request *http.Request) K, options Options) (*Transport[K], error) {
	bad := func(field string, value any, want string) error {
		return &policy.FieldError{Of: "outgoing.NewTransport", Field: field, Value: value, Want: want}
	}
	switch {
	case line == nil:
		return nil, bad("line", "nil", "a Line from outgoing.New")
	case key == nil:
		return nil, bad("key", "nil", "a function, such as outgoing.ByHost")
	case options.Retries < 0:
		return nil, bad("options.Retries", options.Retries, "0 or more")
	case len(options.Used) > 1+len(line.units):
		return nil, bad("options.Used", len(options.Used), "names for calls, and for each of Config.Units")
	}
	for _, name := range slices.Concat(options.Used...) {
		if name == "" || len(name) > maxName {
			return nil, bad("options.Used", fmt.Sprintf("%.80q", name), "names of 1 to 64 bytes")
		}
	}
	if options.Base == nil {
		options.Base = http.DefaultTransport
	}
	if options.Repeatable == nil {
		options.Repeatable = repeatable
	}
	return &Transport[K]{line: line, key: key, options: options, buckets: buckets[K]{max: line.config.MaxKeys}}, nil
}

// ByHost returns the request's host in lower case, with its port unless that is the scheme's
// default.
func ByHost(request *http.Request) string {
	host := strings.ToLower(request.URL.Host)
	usual := ":80"
	if request.URL.Scheme == "https" {
		usual = ":443"
	}
	return strings.TrimSuffix(host, usual)
}

// RoundTrip implements http.RoundTripper. A request without a turn is not sent and gets the error
// of [Line.Wait]. Its body is closed in any case. A refusal is a response; [RefusalOf] makes an error of it.
func (t *Transport[K]) RoundTrip(request *http.Request) (*http.Response, error) {
	key := t.key(request)
	var cost []int64
	if t.options.Cost != nil {
		cost = t.options.Cost(request)
	}
	turn, err := t.wait(request.Context(), key, cost)
	if err != nil {
		if request.Body != nil {
			_ = request.Body.Close()
		}
		return nil, err
	}
	// Base or a callback may panic.
	defer func() { turn.Abandon() }()
	for left := t.options.Retries; ; left-- {
		resp, err := t.options.Base.RoundTrip(request)
		if err != nil {
			if unsent(err) {
				turn.Cancel()
			}
			turn.Abandon()
			return resp, err
		}
		a := answer.Of(resp, t.options.Answer, t.line.config.Units)
		turn.Obey(a)
		if a.Refused {
			markRefusal(resp, request, a)
		}
		// A refusal teaches no bucket: the key whose calls wait after it must stay the key of the retry.
		if t.options.Bucket != nil && !a.Refused {
			t.buckets.learn(key, t.options.Bucket(resp))
		}
		if !a.MayRetry() || left <= 0 || !hasBodyAgain(request) || !t.options.Repeatable(request) || !answer.SetAside(request.Context(), resp) {
			used := t.options.Used
			if a.Refused || resp.StatusCode == http.StatusSwitchingProtocols {
				used = nil
			}
			if len(used) > 0 || t.line.inFlight != nil {
				endWith(resp, used, &turn)
			}
			return resp, nil
		}
		turn.Abandon() // so that the request is not in flight twice
		if turn, err = t.wait(request.Context(), key, cost); err != nil {
			return resp, nil //nolint:nilerr // the caller gets the refusal
		}
		if request, err = again(request); err != nil {
			turn.Cancel()
			return resp, nil //nolint:nilerr // as above
		}
		t.line.retries.Add(1)
	}
}

// wait takes a turn in the line of the key. If the key's bucket is learned while the call waits, wait moves to
// the line of the bucket.
func (t *Transport[K]) wait(ctx context.Context, key K, cost []int64) (turn Turn[K], err error) {
	if t.options.Bucket == nil {
		return t.line.Wait(ctx, key, cost...)
	}
	for {
		target := t.buckets.key(key)
		if turn, err = t.line.Wait(ctx, target, cost...); err != nil || t.buckets.key(key) == target {
			return turn, err
		}
		turn.Cancel()
	}
}

// CloseIdleConnections closes the idle connections of Options.Base, if it can.
func (t *Transport[K]) CloseIdleConnections() {
	if c, ok := t.options.Base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// unsent reports whether the request was not sent because Options.Base is another Transport, whose Line gave it no
// turn.
func unsent(err error) bool {
	return errors.Is(err, engine.ErrDeadline) || errors.Is(err, engine.ErrCancelled) || errors.Is(err, engine.ErrCrowded) || errors.Is(err, engine.ErrClosed)
}

func repeatable(request *http.Request) bool {
	switch request.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	_, named := request.Header["Idempotency-Key"]
	_, prefixed := request.Header["X-Idempotency-Key"]
	return named || prefixed
}

func hasBodyAgain(request *http.Request) bool {
	return request.Body == nil || request.Body == http.NoBody || request.GetBody != nil
}

func again(request *http.Request) (*http.Request, error) {
	if request.Body == nil || request.Body == http.NoBody {
		return request, nil
	}
	body, err := request.GetBody()
	if err != nil {
		return nil, err
	}
	// As in net/http, shared parts are not changed.
	next := *request
	next.Body = body
	return &next, nil
}
