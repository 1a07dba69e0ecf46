package grpclimit

import (
	"context"

	"google.golang.org/grpc"

	"github.com/ral-limiter/ral/rpclimit"
)

// UnaryServerInterceptor returns an interceptor that holds unary calls to the limits. Any number of goroutines and
// servers may use it. Put it behind interceptors that authenticate callers, if limits go by what these find: such a
// limit uses rpclimit.ByContext. Call.Identity is the credentials.AuthInfo of the connection, such as a
// credentials.TLSInfo.
//
// limits are required: it panics if they are nil, as those that rpclimit.New returns beside an error.
func UnaryServerInterceptor(limits *rpclimit.Limits) grpc.UnaryServerInterceptor {
	mustHave(limits, "UnaryServerInterceptor")
	taps := limits.Taps()
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		u := &unary{}
		incoming(&u.call, ctx, info.FullMethod)
		u.call.Message = request
		if taps {
			u.call.Tapped = tapped(ctx, limits)
		}
		verdict, session := limits.Begin(&u.call)
		if verdict.Refused() {
			trailer, err := refusal(&verdict)
			setTrailer(ctx, trailer)
			return nil, err
		}
		policies, standing := verdict.AppendRateLimit(u.buffer[:0])
		u.fields[0], u.fields[1] = policies, text(standing)
		if session != nil {
			return u.settled(ctx, request, handler, session)
		}
		response, err := handler(ctx, request)
		u.tell(ctx, err)
		return response, err
	}
}

// unary is what a unary call needs of the heap.
type unary struct {
	call   rpclimit.Call
	fields [2]string // of metadata
	buffer [72]byte  // most values of ratelimit fit
}

// settled runs a handler and settles what the call has taken, also if the handler panics.
func (u *unary) settled(ctx context.Context, request any, handler grpc.UnaryHandler, session *rpclimit.Session) (any, error) {
	served := rpclimit.Served{Panicked: true} // until the handler has returned
	defer func() { session.End(served) }()
	response, err := handler(ctx, request)
	served = rpclimit.Served{Code: codeOf(err)}
	u.tell(ctx, err)
	return response, err
}

// tell sends the RateLimit fields of a call that its handler has answered: in the header unless that is sent. An error
// is sent without a header, as clients do not retry a call when they have one.
func (u *unary) tell(ctx context.Context, err error) {
	md := withFields(nil, &u.fields)
	if md == nil {
		return
	}
	if err != nil || grpc.SetHeader(ctx, md) != nil {
		setTrailer(ctx, md)
	}
}
