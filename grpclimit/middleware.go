package grpclimit

import (
	"context"
	"errors"

	"google.golang.org/grpc"

	"github.com/ral-limiter/ral/rpclimit"
)

// Limiter is a Limiter of github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/ratelimit, for servers that have
// that interceptor already. Call [NewLimiter] to make one. Compared to [UnaryServerInterceptor] it loses:
//
//   - the details of a refusal, its pushback and its code: the interceptor answers each one with ResourceExhausted and
//     the text of the error, also an outage and a missing key. Clients guess when to retry, and repeat what is never
//     admitted;
//   - the RateLimit fields;
//   - Call.Message, so keys and costs by request find none, and the messages of streams;
//   - Charge: a call keeps what it took, as the end of a call is not known;
//   - limits that were decided at a tap, which would be decided again.
//
// It keeps the keys, several limits all or nothing, waiting up to a patience and the deadline, shadow and what is exempt.
type Limiter struct{ limits *rpclimit.Limits }

// NewLimiter returns a Limiter of the limits. They are required: it panics if they are nil.
func NewLimiter(limits *rpclimit.Limits) *Limiter {
	mustHave(limits, "NewLimiter")
	return &Limiter{limits}
}

// Limit returns nil if the call of that context is admitted, and otherwise an error with the reason.
func (l *Limiter) Limit(ctx context.Context) error {
	procedure, _ := grpc.Method(ctx)
	call := &rpclimit.Call{}
	incoming(call, ctx, procedure)
	if verdict, _ := l.limits.Begin(call); verdict.Refused() {
		return errors.New(verdict.Message())
	}
	return nil
}
