package httplimit

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"

	"github.com/ral-limiter/ral/internal/adapter/admission"
)

// ErrUsedUp is the error of writes to a response that a Limit.Stream has ended, and the context.Cause of its
// request's context from then on.
var ErrUsedUp = errors.New("httplimit: the response has used up a limit with Stream")

// LastEvent sets the last bytes of the response to r if a Limit.Stream ends it, such as a server-sent event that
// says so. These bytes are not charged. A later call replaces them. LastEvent does nothing for a request without
// such a limit.
func LastEvent(r *http.Request, event []byte) {
	s, _ := r.Context().Value(streamKey{}).(*stream)
	for ; s != nil; s = s.outer {
		s.last.Store(&event)
	}
}

type streamKey struct{}

// stream is a response that is charged while it is written.
type stream struct {
	// outer is the stream of a middleware around this one, or nil.
	outer  *stream
	pays   *admission.Stream[*http.Request, Served]
	ctx    context.Context
	cancel context.CancelCauseFunc
	events eventCounter
	last   atomic.Pointer[[]byte]
	ended  bool
}

// newStream returns the stream of a request, and the request to pass on. The caller must set its
// pays.
func newStream(request *http.Request) (*stream, *http.Request) {
	outer, _ := request.Context().Value(streamKey{}).(*stream)
	s := &stream{outer: outer}
	s.ctx, s.cancel = context.WithCancelCause(context.WithValue(request.Context(), streamKey{}, s))
	return s, request.WithContext(s.ctx)
}

// eventCounter counts server-sent events, which end with an empty line. Lines end with \n or \r\n. Comments alone
// are no event.
type eventCounter struct {
	n                int64
	inLine, hasField bool
}

func (e *eventCounter) count(buffer []byte) {
	for _, char := range buffer {
		switch {
		case char == '\r':
		case char == '\n' && e.inLine:
			e.inLine = false
		case char == '\n' && e.hasField:
			e.n++
			e.hasField = false
		case char == '\n':
		case !e.inLine:
			e.inLine, e.hasField = true, e.hasField || char != ':'
		}
	}
}
