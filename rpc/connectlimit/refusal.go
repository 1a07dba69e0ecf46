package connectlimit

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"connectrpc.com/connect"

	"github.com/ral-limiter/ral/internal/core/whole"
	"github.com/ral-limiter/ral/rpc/rpcstatus"
	"github.com/ral-limiter/ral/rpclimit"
)

// The names of header fields, in the canonical form of net/http.
const (
	policyField     = "Ratelimit-Policy"
	limitField      = "Ratelimit"
	retryAfterField = "Retry-After"
	pushbackField   = "Grpc-Retry-Pushback-Ms"
)

// refusal returns a call's error. Connect sends its metadata in the header of unary calls.
func refusal(verdict *rpclimit.Verdict) *connect.Error {
	err := connect.NewError(connect.Code(verdict.Code()), errors.New(verdict.Message()))
	for _, detail := range rpcstatus.Details(verdict) {
		if errorDetail, bad := connect.NewErrorDetail(detail); bad == nil {
			err.AddDetail(errorDetail)
		}
	}
	meta := err.Meta()
	tell(verdict, new([2]string), func() http.Header { return meta })
	if after, ok := verdict.Retry(); ok {
		meta[retryAfterField] = []string{strconv.FormatInt(retrySeconds(after), 10)}
	}
	if ms, ok := verdict.Pushback(); ok {
		meta[pushbackField] = []string{strconv.FormatInt(ms, 10)}
	}
	return err
}

// retrySeconds rounds up to whole seconds, at least 1: 0 invites the client at once.
func retrySeconds(duration time.Duration) int64 {
	return max(1, whole.Up(duration, time.Second))
}
