package outgoing

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// Options configures a [Transport]. The zero Options is a good choice.
type Options struct {
	// Base sends the requests. The default is http.DefaultTransport.
	Base http.RoundTripper

	// Retries is how often a request that was refused is sent again, at most. Each time it
	// waits its turn behind those that wait already, and after the back-off that the answer
	// asked for. It is sent again only if Repeatable reports that it may be, and if its body
	// can be had again: there is none, or GetBody is set. The default is 0, never.
	//
	// If the next turn comes later than the context or Config.Patience allows, the refusal is
	// returned. So is one whose body is longer than 64 KiB, or does not end within a second.
	Retries int

	// Repeatable reports whether a request may be sent more than once. The default is that
	// of net/http: GET, HEAD, OPTIONS and TRACE, and also PUT and DELETE, and any with the
	// field Idempotency-Key or X-Idempotency-Key.
	Repeatable func(r *http.Request) bool
}

// Transport is an http.RoundTripper that has each request wait its turn in a [Line], and obeys
// the answers. It changes no request. Call [NewTransport] to make one. Any number of goroutines
// may use it, as may several Transports one Line.
type Transport[K comparable] struct {
	line    *Line[K]
	key     func(r *http.Request) K
	options Options
}

// NewTransport returns a Transport over a line. key returns the key of a request, whose limit
// it is: [ByHost] or a function of the caller's. It must not change the request. An error is a
// *policy.FieldError that names the field.
func NewTransport[K comparable](line *Line[K], key func(r *http.Request) K, options Options) (*Transport[K], error) {
	bad := func(field string, value any, want string) error {
		return &policy.FieldError{Of: "outgoing.NewTransport", Field: field, Value: value, Want: want}
	}
	switch {
	case line == nil:
		return nil, bad("line", "nil", "what outgoing.New returns")
	case key == nil:
		return nil, bad("key", "nil", "a function, such as outgoing.ByHost")
	case options.Retries < 0:
		return nil, bad("options.Retries", options.Retries, "0 or more")
	}
	if options.Base == nil {
		options.Base = http.DefaultTransport
	}
	if options.Repeatable == nil {
		options.Repeatable = repeatable
	}
	return &Transport[K]{line, key, options}, nil
}

// ByHost returns the host that a request goes to, in lower case and with its port, if that is
// not the usual one of its scheme.
func ByHost(r *http.Request) string {
	host := strings.ToLower(r.URL.Host)
	usual := ":80"
	if r.URL.Scheme == "https" {
		usual = ":443"
	}
	return strings.TrimSuffix(host, usual)
}

// RoundTrip implements http.RoundTripper. A request whose turn does not come gets the error of
// [Line.Wait], and is not sent. Its body is closed in any case.
func (t *Transport[K]) RoundTrip(r *http.Request) (*http.Response, error) {
	key := t.key(r)
	turn, err := t.line.Wait(r.Context(), key)
	if err != nil {
		closeBody(r)
		return nil, err
	}
	defer func() { turn.Lost() }() // if Base, or a function of the program, panics
	for left := t.options.Retries; ; left-- {
		resp, err := t.options.Base.RoundTrip(r)
		if err != nil {
			turn.Lost()
			return resp, err
		}
		a := AnswerOf(resp)
		turn.Obey(a)
		if !a.Refused || left <= 0 || !hasBodyAgain(r) || !t.options.Repeatable(r) || !setAside(r.Context(), resp) {
			return resp, nil
		}
		if turn, err = t.line.Wait(r.Context(), key); err != nil {
			return resp, nil //nolint:nilerr // the refusal is the answer
		}
		if r, err = again(r); err != nil {
			turn.Cancel()
			return resp, nil //nolint:nilerr // as above
		}
		t.line.CountRetry()
	}
}

// CloseIdleConnections closes those of Options.Base, if it can.
func (t *Transport[K]) CloseIdleConnections() {
	if c, ok := t.options.Base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

func closeBody(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
}

// repeatable is the default of Options.Repeatable.
func repeatable(r *http.Request) bool {
	switch r.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	for _, field := range [...]string{"Idempotency-Key", "X-Idempotency-Key"} {
		if _, ok := r.Header[field]; ok {
			return true
		}
	}
	return false
}

// hasBodyAgain reports whether a request's body can be sent once more.
func hasBodyAgain(r *http.Request) bool {
	return r.Body == nil || r.Body == http.NoBody || r.GetBody != nil
}

// again returns a request to be sent once more.
func again(r *http.Request) (*http.Request, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return r, nil
	}
	body, err := r.GetBody()
	if err != nil {
		return nil, err
	}
	next := *r // as net/http does: what is shared is not changed
	next.Body = body
	return &next, nil
}

const (
	// mostAside bounds how much of a refusal's body is read so that its connection can be used
	// again while the request waits.
	mostAside = 64 << 10
	// asideWithin bounds the time that this takes.
	asideWithin = time.Second
)

// setAside reads a body to its end and closes it, and puts what was read in its place. It
// reports whether the body was that short, and came in time. If not, the response still has all of
// its body.
func setAside(ctx context.Context, resp *http.Response) bool {
	if resp.Body == nil { // as net/http allows
		return true
	}
	b := &aside{from: resp.Body, done: make(chan struct{})}
	go b.fill()
	late := time.NewTimer(asideWithin)
	defer late.Stop()
	select {
	case <-b.done:
	case <-late.C:
	case <-ctx.Done():
	}
	resp.Body = b
	if !b.stop() {
		return false
	}
	_ = b.from.Close()
	resp.Body = io.NopCloser(&b.read)
	return true
}

// aside is a body of which the beginning is read by a goroutine.
type aside struct {
	from    io.ReadCloser
	stopped atomic.Bool

	done chan struct{} // closed when the goroutine has ended, and read and err are the reader's
	read bytes.Buffer
	err  error // the error of the body, io.EOF at its end
}

// fill reads until the body ends, is too long, or stop is called. A Read that blocks then ends with
// the body, which its reader closes.
func (b *aside) fill() {
	defer close(b.done)
	var chunk [4 << 10]byte
	for !b.stopped.Load() && b.err == nil && b.read.Len() <= mostAside {
		var n int
		n, b.err = b.from.Read(chunk[:])
		b.read.Write(chunk[:n])
	}
}

// stop ends fill after the present Read, and reports whether it has read the whole body.
func (b *aside) stop() (whole bool) {
	b.stopped.Store(true)
	select {
	case <-b.done:
		return b.err == io.EOF && b.read.Len() <= mostAside //nolint:errorlint // as io.Reader has it
	default:
		return false
	}
}

// Read implements io.Reader.
func (b *aside) Read(p []byte) (int, error) {
	<-b.done
	switch {
	case b.read.Len() > 0:
		return b.read.Read(p)
	case b.err != nil:
		return 0, b.err
	}
	return b.from.Read(p)
}

// Close implements io.Closer. It does not wait for a Read that blocks, and ends it if the body
// allows that.
func (b *aside) Close() error { return b.from.Close() }
