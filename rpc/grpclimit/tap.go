package grpclimit

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/tap"

	"github.com/ral-limiter/ral/rpclimit"
)

// TapHandle returns a handle for grpc.InTapHandle, which refuses calls before the server has made a stream or a
// goroutine for them: the cheapest refusal. It decides the limits with rpclimit.Limit.AtTap. The interceptors of the
// same limits decide the others and settle all, so a server needs them as well.
//
// A refusal has the details of others but no trailer: gRPC sends none from there. So clients with a retry policy retry
// by their own backoff, and a call that is never admitted is retried, too. Call.Message and Call.Identity are those of
// the interceptors, except that there is no message. What a call has taken at the tap is kept if no interceptor sees
// it, as of a method that there is not. gRPC calls the API of taps experimental.
//
// A panic of a function of the program is ended there, as it would stop all calls of the connection for ever, and
// nothing would show it. The call is refused with codes.Internal and has taken nothing. The first panic is logged by
// rpclimit.Options.Logger, and Stats.Misconfigured counts all.
//
// limits are required, and one with AtTap among them: otherwise it panics.
func TapHandle(limits *rpclimit.Limits) tap.ServerInHandle {
	mustHave(limits, "TapHandle")
	if !limits.Taps() {
		panic("grpclimit.TapHandle: no limit has AtTap: want at least one, which a tap can decide")
	}
	return func(ctx context.Context, info *tap.Info) (_ context.Context, err error) {
		call := &rpclimit.Call{}
		incoming(call, ctx, info.FullMethodName)
		defer func() {
			if cause := recover(); cause != nil {
				verdict := limits.TapPanicked(call, cause)
				_, err = refusal(&verdict)
			}
		}()
		call.Header = tapHeader(info.Header)
		verdict, session := limits.Tap(call)
		if verdict.Refused() {
			_, err := refusal(&verdict)
			return ctx, err
		}
		if session == nil {
			return ctx, nil
		}
		p := &pass{}
		p.session.Store(session)
		return context.WithValue(ctx, passKey{limits}, p), nil
	}
}

// tapHeader is the metadata of a call at the tap.
type tapHeader metadata.MD

// Values implements rpclimit.Header.
func (h tapHeader) Values(lower, _ string) []string { return h[lower] }

// pass is what a call has taken at the tap, until an interceptor takes it over.
type pass struct {
	session atomic.Pointer[rpclimit.Session]
}

type passKey struct{ of *rpclimit.Limits }

// tapped returns what the call has taken at a tap of the same limits, once.
func tapped(ctx context.Context, limits *rpclimit.Limits) *rpclimit.Session {
	if p, ok := ctx.Value(passKey{limits}).(*pass); ok {
		return p.session.Swap(nil)
	}
	return nil
}
