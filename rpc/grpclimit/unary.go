package grpclimit

import (
	"context"

	"google.golang.org/grpc"

	"github.com/ral-limiter/ral/rpc/internal/calls"
	"github.com/ral-limiter/ral/rpclimit"
)

// UnaryServerInterceptor returns an interceptor that holds unary calls to the limits, for any
// number of servers. Put it behind authentication that limits use by rpclimit.ByContext.
// Call.Identity is the connection's credentials.AuthInfo, such as a credentials.TLSInfo. It panics
// if guard is nil.
func UnaryServerInterceptor(guard *rpclimit.Guard) grpc.UnaryServerInterceptor {
	mustHave(guard, "UnaryServerInterceptor")
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		u := &unary{}
		incoming(&u.call, ctx, info.FullMethod)
		u.call.Message = request
		u.call.Tapped = calls.Tapped(ctx, guard)
		verdict, session := guard.Begin(&u.call)
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

// unary is one heap allocation for a unary call.
type unary struct {
	call   rpclimit.Call
	fields [2]string
	// Most values of ratelimit fit into buffer.
	buffer [72]byte
}

func (u *unary) settled(ctx context.Context, request any, handler grpc.UnaryHandler, session *rpclimit.Session) (any, error) {
	// The handler counts as panicked until it has returned.
	served := rpclimit.Served{Panicked: true}
	defer func() { session.End(served) }()
	during := session.Context(ctx)
	response, err := handler(during, request)
	err = orLost(during, err)
	served = rpclimit.Served{Code: codeOf(err)}
	u.tell(ctx, err)
	return response, err
}

// tell sends the RateLimit fields in the header, unless it is sent, or with an error in the
// trailer.
func (u *unary) tell(ctx context.Context, err error) {
	md := withFields(nil, &u.fields)
	if md == nil {
		return
	}
	if err != nil || grpc.SetHeader(ctx, md) != nil {
		setTrailer(ctx, md)
	}
}
