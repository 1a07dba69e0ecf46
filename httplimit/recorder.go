package httplimit

import (
	"bufio"
	"cmp"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// recorder is the ResponseWriter of a request that is charged.
type recorder struct {
	http.ResponseWriter
	served Served
	// stream is nil unless a limit has Stream.
	stream *stream
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

func (c *recorder) Write(buffer []byte) (int, error) {
	if !c.charge(buffer) {
		return 0, ErrUsedUp
	}
	c.begin()
	n, err := c.ResponseWriter.Write(buffer)
	c.served.Bytes += int64(n)
	return n, err
}

func (c *recorder) WriteString(text string) (int, error) {
	if c.stream != nil {
		return c.Write([]byte(text))
	}
	c.begin()
	n, err := io.WriteString(c.ResponseWriter, text)
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

// charge charges for bytes of a Limit.Stream before they are written. If a limit refuses these bytes,
// charge ends the response and returns false.
func (c *recorder) charge(buffer []byte) bool {
	stream := c.stream
	switch {
	case stream == nil:
		return true
	case stream.ended:
		return false
	}
	events, soFar := stream.events, c.served
	events.count(buffer)
	soFar.Status, soFar.Bytes, soFar.Events = cmp.Or(soFar.Status, http.StatusOK), soFar.Bytes+int64(len(buffer)), events.n
	after, ok := stream.pays.Pay(stream.ctx, soFar)
	if ok {
		stream.events, c.served.Events = events, events.n
		return true
	}
	c.endStream(after)
	return false
}

// endStream ends the response with the last event. A response that has not begun is a 429 without it.
func (c *recorder) endStream(after time.Duration) {
	c.stream.ended = true
	if last := c.stream.last.Load(); last != nil {
		c.begin()
		// An error means that the client has left.
		_, _ = c.ResponseWriter.Write(*last)
	} else if c.served.Status == 0 {
		header := c.Header()
		header.Del("Content-Length")
		if after != 0 && after != policy.Never {
			header[retryAfterField] = []string{strconv.FormatInt(retrySeconds(after), 10)}
		}
		c.WriteHeader(http.StatusTooManyRequests)
	}
	_ = http.NewResponseController(c.ResponseWriter).Flush()
	c.stream.cancel(ErrUsedUp)
}

// The types below add the methods that only some ResponseWriters have.

// flushes has both ways in which a ResponseWriter sends what was written so far: handlers look for the
// first, and http.ResponseController for the second.
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

func (p pusher) Push(target string, options *http.PushOptions) error {
	return p.ResponseWriter.(http.Pusher).Push(target, options)
}

// writer returns a ResponseWriter that implements Flusher, Hijacker and Pusher if the wrapped
// ResponseWriter does.
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
	// HTTP/1 has these.
	case canFlush && canHijack:
		return struct {
			*recorder
			flushes
			http.Hijacker
		}{c, f, h}
	// HTTP/2 has these.
	case canFlush && canPush:
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
