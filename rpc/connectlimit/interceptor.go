package connectlimit

import (
	"context"
	"errors"
	"net/http"

	"connectrpc.com/connect"

	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/rpc/internal/calls"
	"github.com/ral-limiter/ral/rpclimit"
)

// NewInterceptor returns an interceptor that holds the unary and streaming calls of handlers to the
// limits. Several handlers may share it. It passes on the calls of clients. It panics if guard is
// nil.
//
// Answers to admitted calls have the RateLimit fields in the header, also with an error. A stream
// takes as it opens, and for each message by rpclimit.Options.CostReceived and CostSent. A refused
// message ends the stream: the handler's connection returns the refusal from then on, and the
// client gets it, whatever the handler returns. Call.Message is the pointer to the handler's
// message. Call.Identity is nil: use rpclimit.ByContext. The handler's context ends if units in use are lost: see
// rpclimit.Session.Context. A call of Receive that waits for a message then does not return by itself.
func NewInterceptor(guard *rpclimit.Guard) connect.Interceptor {
	if guard == nil {
		panic("connectlimit.NewInterceptor: guard is nil: want a Guard from rpclimit.New")
	}
	return &interceptor{guard}
}

type interceptor struct{ guard *rpclimit.Guard }

// unary is one heap allocation for a unary call.
type unary struct {
	call   rpclimit.Call
	fields [2]string
}

func (i *interceptor) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, request connect.AnyRequest) (response connect.AnyResponse, err error) {
		spec := request.Spec()
		if spec.IsClient {
			return next(ctx, request)
		}
		u := &unary{call: rpclimit.Call{
			Context:   ctx,
			Procedure: spec.Procedure,
			Peer:      rpclimit.ParsePeer(request.Peer().Addr),
			Header:    header(request.Header()),
			Message:   request.Any(),
			Tapped:    calls.Tapped(ctx, i.guard),
		}}
		verdict, session := i.guard.Begin(&u.call)
		if verdict.Refused() {
			return nil, refusal(&verdict)
		}
		if info, ok := connect.CallInfoForHandlerContext(ctx); ok {
			tell(&verdict, &u.fields, info.ResponseHeader)
		}
		if session == nil {
			return next(ctx, request)
		}
		served := rpclimit.Served{Panicked: true} // until the handler has returned
		defer func() { session.End(served) }()
		during := session.Context(ctx)
		response, err = next(during, request)
		err = orLost(during, err)
		served = rpclimit.Served{Code: codeOf(err)}
		return response, err
	}
}

func (i *interceptor) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

type header http.Header

func (h header) Values(_, canonical string) []string { return h[canonical] }

// tell sets the fields of an admitted call. values are to hold them.
func tell(verdict *rpclimit.Verdict, values *[2]string, header func() http.Header) {
	var buffer [128]byte
	policies, standing := verdict.AppendRateLimit(buffer[:0])
	if values[0], values[1] = policies, string(standing); policies == "" && len(standing) == 0 {
		return
	}
	headers := header()
	add(headers, policyField, values[0:1:1])
	add(headers, limitField, values[1:2:2])
}

// add adds a line, unless empty, to a field, after the lines of other limits.
func add(header http.Header, name string, line []string) {
	switch before := header[name]; {
	case line[0] == "":
	case len(before) == 0:
		header[name] = line
	default:
		header[name] = append(before[:len(before):len(before)], line...)
	}
}

// codeOf returns the code that a client is told of a handler's error.
func codeOf(err error) rpclimit.Code {
	var coded *connect.Error
	switch {
	case err == nil:
		return rpclimit.CodeOK
	case errors.As(err, &coded):
		return rpclimit.Code(coded.Code())
	case errors.Is(err, context.Canceled):
		return rpclimit.CodeCanceled
	case errors.Is(err, context.DeadlineExceeded):
		return rpclimit.CodeDeadlineExceeded
	}
	return rpclimit.Code(connect.CodeUnknown)
}

// orLost returns the error of a handler, or another in its place if the handler ended with the call's context
// because units in use were lost: the client has cancelled nothing.
func orLost(ctx context.Context, err error) error {
	if codeOf(err) == rpclimit.CodeCanceled && errors.Is(context.Cause(ctx), limits.ErrLost) {
		return connect.NewError(connect.CodeUnavailable, limits.ErrLost)
	}
	return err
}
