// Package calls has what the packages for gRPC and for Connect share: turns and answers of clients, and sessions
// that begin before an interceptor.
package calls

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/outgoing"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/rpc/rpcstatus"
	"github.com/ral-limiter/ral/rpclimit"
)

// FieldFault returns the error about a parameter of a function.
func FieldFault(function, field string, value any, want string) error {
	return &policy.FieldError{Of: function, Field: field, Value: value, Want: want}
}

// CheckClient checks the parameters that the functions for clients have in common. example names a key.
func CheckClient(function, example string, hasLine, hasKey bool, retries int) error {
	switch {
	case !hasLine:
		return FieldFault(function, "line", "nil", "a Line from outgoing.New")
	case !hasKey:
		return FieldFault(function, "key", "nil", "a function, such as "+example)
	case retries < 0:
		return FieldFault(function, "options.Retries", retries, "0 or more")
	}
	return nil
}

// Unsent returns the code of a call without a turn, by the error of outgoing.Line.Wait.
func Unsent(err error) rpclimit.Code {
	switch {
	case errors.Is(err, engine.ErrDeadline) || errors.Is(err, context.DeadlineExceeded):
		return rpclimit.CodeDeadlineExceeded
	case errors.Is(err, engine.ErrCancelled):
		return rpclimit.CodeCanceled
	case errors.Is(err, engine.ErrCrowded):
		return rpclimit.CodeResourceExhausted
	}
	return rpclimit.CodeUnavailable
}

// Pushback parses the values of grpc-retry-pushback-ms. A number below 0 is policy.Never. ok is false for anything
// but one number.
func Pushback(values []string) (after time.Duration, ok bool) {
	if len(values) != 1 {
		return 0, false
	}
	ms, err := strconv.ParseInt(values[0], 10, 64)
	if err != nil || ms < 0 {
		return policy.Never, err == nil
	}
	return time.Duration(min(ms, policy.Never.Milliseconds())) * time.Millisecond, true
}

// RetryInfo returns the delay of a google.rpc.RetryInfo. ok is false for any other detail of a status, and without
// a valid delay.
func RetryInfo(detail any) (delay time.Duration, ok bool) {
	info, ok := detail.(*errdetails.RetryInfo)
	if !ok || info.GetRetryDelay().CheckValid() != nil {
		return 0, false
	}
	return min(max(0, info.GetRetryDelay().AsDuration()), policy.Never-1), true
}

// Judge completes the answer of a call that ended with an error of the server: whether it is a refusal, by its code
// and message, and what the hook says, which may be nil. timed reports whether the error tells when to retry.
func Judge(
	answer outgoing.Answer, code rpclimit.Code, message string, timed bool, hook func(error) (outgoing.Answer, bool), err error,
) outgoing.Answer {
	switch code {
	case rpclimit.CodeResourceExhausted:
		answer.Refused = timed || !rpcstatus.TooLarge(message)
	case rpclimit.CodeUnavailable:
		answer.Refused = timed
	}
	if hook != nil {
		if by, known := hook(err); known {
			answer = answer.With(by)
		}
	}
	if !answer.Refused {
		answer.RetryAfter = 0
	}
	return answer
}

// Pass is a call's session at a tap or a gate, until an interceptor takes it over.
type Pass struct {
	session atomic.Pointer[rpclimit.Session]
}

type passKey struct{ guard *rpclimit.Guard }

// Carry returns a context with the session that a guard has begun.
func Carry(ctx context.Context, guard *rpclimit.Guard, session *rpclimit.Session) (context.Context, *Pass) {
	pass := &Pass{}
	pass.session.Store(session)
	return context.WithValue(ctx, passKey{guard}, pass), pass
}

// Take returns the session the first time, and then nil.
func (p *Pass) Take() *rpclimit.Session { return p.session.Swap(nil) }

// Tapped takes the session of a guard out of the context of a call. It is nil if there is none.
func Tapped(ctx context.Context, guard *rpclimit.Guard) *rpclimit.Session {
	if !guard.Taps() {
		return nil
	}
	if pass, ok := ctx.Value(passKey{guard}).(*Pass); ok {
		return pass.Take()
	}
	return nil
}
