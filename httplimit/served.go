package httplimit

import (
	"bufio"
	"io"
	"net"
	"net/http"
)

// Served is what a handler has answered, for Options.Charge.
type Served struct {
	// Status is the status of the answer. It is 0 if there is none: the handler panicked
	// before it wrote anything, or took over the connection.
	Status int
	// Bytes is how many bytes the answer's body has, before any compression by the
	// server that this handler does not see. An answer to HEAD has none, whatever the
	// handler writes, nor do those that a handler writes after it took over the connection
	// count.
	Bytes int64
	// Hijacked tells that the handler took over the connection.
	Hijacked bool
	// Panicked tells that the handler did not return: it panicked, also with
	// http.ErrAbortHandler.
	Panicked bool
}

// recorder notes what a handler answers. http.ResponseController finds what it does not
// do itself by Unwrap.
type recorder struct {
	http.ResponseWriter
	served Served
}

func (c *recorder) Unwrap() http.ResponseWriter { return c.ResponseWriter }

func (c *recorder) WriteHeader(status int) {
	// Informational ones come before the answer's, but 101 is one.
	if c.served.Status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		c.served.Status = status
	}
	c.ResponseWriter.WriteHeader(status)
}

func (c *recorder) begin() {
	if c.served.Status == 0 {
		c.served.Status = http.StatusOK
	}
}

func (c *recorder) Write(b []byte) (int, error) {
	c.begin()
	n, err := c.ResponseWriter.Write(b)
	c.served.Bytes += int64(n)
	return n, err
}

func (c *recorder) WriteString(s string) (int, error) {
	c.begin()
	n, err := io.WriteString(c.ResponseWriter, s)
	c.served.Bytes += int64(n)
	return n, err
}

// ReadFrom keeps the way open by which the server sends a file without copying it.
func (c *recorder) ReadFrom(from io.Reader) (int64, error) {
	c.begin()
	n, err := io.Copy(c.ResponseWriter, from)
	c.served.Bytes += n
	return n, err
}

// What only some ResponseWriters do is done by the types below.

type flushes interface {
	http.Flusher
	FlushError() error
}

type flusher struct{ *recorder }

func (f flusher) Flush() { _ = f.FlushError() }

func (f flusher) FlushError() error {
	f.begin()
	return http.NewResponseController(f.ResponseWriter).Flush()
}

type hijacker struct{ *recorder }

func (h hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffer, err := h.ResponseWriter.(http.Hijacker).Hijack()
	h.served.Hijacked = h.served.Hijacked || err == nil
	return conn, buffer, err
}

type pusher struct{ *recorder }

func (p pusher) Push(target string, o *http.PushOptions) error {
	return p.ResponseWriter.(http.Pusher).Push(target, o)
}

// writer returns the recorder as a ResponseWriter that does what the one that it wraps
// does, of flushing, hijacking and pushing.
func (c *recorder) writer() http.ResponseWriter {
	_, canFlush := c.ResponseWriter.(http.Flusher)
	_, canHijack := c.ResponseWriter.(http.Hijacker)
	_, canPush := c.ResponseWriter.(http.Pusher)
	f, h, p := flusher{c}, hijacker{c}, pusher{c}
	switch {
	case canFlush && canHijack && canPush:
		return struct {
			*recorder
			flushes
			http.Hijacker
			http.Pusher
		}{c, f, h, p}
	case canFlush && canHijack: // HTTP/1
		return struct {
			*recorder
			flushes
			http.Hijacker
		}{c, f, h}
	case canFlush && canPush: // HTTP/2
		return struct {
			*recorder
			flushes
			http.Pusher
		}{c, f, p}
	case canHijack && canPush:
		return struct {
			*recorder
			http.Hijacker
			http.Pusher
		}{c, h, p}
	case canFlush:
		return struct {
			*recorder
			flushes
		}{c, f}
	case canHijack:
		return struct {
			*recorder
			http.Hijacker
		}{c, h}
	case canPush:
		return struct {
			*recorder
			http.Pusher
		}{c, p}
	}
	return c
}
