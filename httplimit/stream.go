package httplimit

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/internal/adapter/admission"
	"github.com/ral-limiter/ral/policy"
)

// ErrUsedUp is the error of writes to a response that a Limit.Stream has ended, and the context.Cause of its
// request's context from then on.
var ErrUsedUp = errors.New("httplimit: the response has used up a limit with Stream")

// LastEvent sets the last bytes of the response to r if a Limit.Stream ends it, such as a server-sent event that
// says so. They are not charged. A later call replaces them. It does nothing for a request without such a limit.
func LastEvent(r *http.Request, event []byte) {
	s, _ := r.Context().Value(streamKey{}).(*stream)
	for ; s != nil; s = s.outer {
		s.last.Store(&event)
	}
}

type streamKey struct{}

// stream is a response that is charged while it is written.
type stream struct {
	outer  *stream // of a middleware around this one, or nil
	pays   *admission.Stream[*http.Request, Served]
	ctx    context.Context
	cancel context.CancelCauseFunc
	events eventCounter
	last   atomic.Pointer[[]byte]
	ended  bool
}

// newStream returns the stream of a request, and the request to pass on.
func newStream(m *Middleware, r *http.Request, s admission.Settlement) (*stream, *http.Request) {
	outer, _ := r.Context().Value(streamKey{}).(*stream)
	st := &stream{outer: outer}
	st.ctx, st.cancel = context.WithCancelCause(context.WithValue(r.Context(), streamKey{}, st))
	r = r.WithContext(st.ctx)
	st.pays = m.control.Stream(st.ctx, r, s)
	return st, r
}

// pay charges for bytes before they are written. If a limit refuses them, it ends the response and returns false.
func (s *stream) pay(c *recorder, b []byte) bool {
	if s.ended {
		return false
	}
	events, soFar := s.events, c.served
	events.count(b)
	soFar.Status, soFar.Bytes, soFar.Events = cmp.Or(soFar.Status, http.StatusOK), soFar.Bytes+int64(len(b)), events.n
	after, ok := s.pays.Pay(s.ctx, soFar)
	if ok {
		s.events, c.served.Events = events, events.n
		return true
	}
	s.end(c, after)
	return false
}

// end ends a response with the last event. A response that has not begun is a 429 without it.
func (s *stream) end(c *recorder, after time.Duration) {
	s.ended = true
	if last := s.last.Load(); last != nil {
		c.begin()
		_, _ = c.ResponseWriter.Write(*last) // an error means that the client has left
	} else if c.served.Status == 0 {
		h := c.Header()
		h.Del("Content-Length")
		if after != 0 && after != policy.Never {
			h[retryAfterField] = []string{strconv.FormatInt(retrySeconds(after), 10)}
		}
		c.WriteHeader(http.StatusTooManyRequests)
	}
	_ = http.NewResponseController(c.ResponseWriter).Flush()
	s.cancel(ErrUsedUp)
}

// eventCounter counts server-sent events, which end with an empty line. Lines end with \n or \r\n. Comments alone
// are no event.
type eventCounter struct {
	n                int64
	inLine, hasField bool
}

func (e *eventCounter) count(b []byte) {
	for _, c := range b {
		switch {
		case c == '\r':
		case c == '\n' && e.inLine:
			e.inLine = false
		case c == '\n' && e.hasField:
			e.n++
			e.hasField = false
		case c == '\n':
		case !e.inLine:
			e.inLine, e.hasField = true, e.hasField || c != ':'
		}
	}
}
