package httplimit

import (
	"bufio"
	"io"
	"net"
	"net/http"
)

// Served describes a handler's answer, for Options.Charge.
type Served struct {
	// Status is 0 if the handler panicked before it wrote anything, or took over the connection. It is
	// 200 if the handler returned before it wrote anything, also if a router writes an error later.
	Status int
	// Bytes is the size of the body as the handler wrote it, without bytes after it took over the
	// connection. It is 0 for HEAD.
	Bytes int64
	// Events is the number of server-sent events in these bytes. It is counted for Limit.Stream alone.
	Events int64
	// Hijacked reports whether the handler took over the connection.
	Hijacked bool
	// Panicked reports whether the handler panicked, http.ErrAbortHandler included.
	Panicked bool
}

type recorder struct {
	http.ResponseWriter
	served Served
	stream *stream // nil unless a limit has Stream
}

func (c *recorder) Unwrap() http.ResponseWriter { return c.ResponseWriter }

func (c *recorder) WriteHeader(status int) {
	// Of the informational statuses only 101 is an answer.
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
	if c.stream != nil && !c.stream.pay(c, b) {
		return 0, ErrUsedUp
	}
	c.begin()
	n, err := c.ResponseWriter.Write(b)
	c.served.Bytes += int64(n)
	return n, err
}

func (c *recorder) WriteString(s string) (int, error) {
	if c.stream != nil {
		return c.Write([]byte(s))
	}
	c.begin()
	n, err := io.WriteString(c.ResponseWriter, s)
	c.served.Bytes += int64(n)
	return n, err
}

// ReadFrom lets the server send a file without copying it.
func (c *recorder) ReadFrom(from io.Reader) (int64, error) {
	if c.stream != nil {
		return io.Copy(struct{ io.Writer }{c}, from)
	}
	c.begin()
	n, err := io.Copy(c.ResponseWriter, from)
	c.served.Bytes += n
	return n, err
}

// The types below add the methods that only some ResponseWriters have.

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

// writer returns a ResponseWriter that implements Flusher, Hijacker and Pusher if the wrapped does.
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
