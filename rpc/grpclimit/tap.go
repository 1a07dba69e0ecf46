package grpclimit

import (
	"context"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/tap"

	"github.com/ral-limiter/ral/rpc/internal/calls"
	"github.com/ral-limiter/ral/rpclimit"
)

// TapHandle returns a handle for grpc.InTapHandle, experimental in gRPC. It refuses calls before
// the server has made a stream or a goroutine, by the limits with rpclimit.Limit.AtTap. The
// interceptors of the same limits, also required, decide the others and settle all. Without an
// interceptor, as for an unknown method, units stay taken. TapHandle panics if no limit has AtTap,
// or guard is nil.
//
// gRPC sends no trailer from there. So clients retry refused calls by their own backoff, even if
// never admitted. Call.Message is nil; Call.Identity is as in the interceptors. A panic of the
// program's functions is recovered, as it would hang the connection. The call is refused with
// codes.Internal and takes nothing. rpclimit.Options.Logger logs the first, and Stats.Misconfigured
// counts all.
func TapHandle(guard *rpclimit.Guard) tap.ServerInHandle {
	mustHave(guard, "TapHandle")
	if !guard.Taps() {
		panic("grpclimit.TapHandle: no limit has AtTap: want at least one, which a tap can decide")
	}
	return func(ctx context.Context, info *tap.Info) (_ context.Context, err error) {
		call := &rpclimit.Call{}
		incoming(call, ctx, info.FullMethodName)
		defer func() {
			if cause := recover(); cause != nil {
				verdict := guard.TapPanicked(call, cause)
				_, err = refusal(&verdict)
			}
		}()
		call.Header = tapHeader(info.Header)
		verdict, session := guard.Tap(call)
		if verdict.Refused() {
			_, err := refusal(&verdict)
			return ctx, err
		}
		if session == nil {
			return ctx, nil
		}
		ctx, _ = calls.Carry(ctx, guard, session)
		return ctx, nil
	}
}

type tapHeader metadata.MD

func (h tapHeader) Values(lower, _ string) []string { return h[lower] }
