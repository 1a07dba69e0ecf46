package grpclimit

import (
	"context"
	"errors"
	"strconv"
	"unsafe"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/rpc/rpcstatus"
	"github.com/ral-limiter/ral/rpclimit"
)

const (
	policyKey   = "ratelimit-policy"
	limitKey    = "ratelimit"
	pushbackKey = "grpc-retry-pushback-ms"
)

func incoming(call *rpclimit.Call, ctx context.Context, procedure string) {
	call.Context, call.Procedure, call.Header = ctx, procedure, (*header)(call)
	if p, ok := peer.FromContext(ctx); ok {
		call.Peer = rpclimit.PeerOf(p.Addr)
		if p.AuthInfo != nil {
			call.Identity = p.AuthInfo
		}
	}
}

// header finds metadata in the context value by value, as the whole would be a copy.
type header rpclimit.Call

func (h *header) Values(lower, _ string) []string {
	return metadata.ValueFromIncomingContext(h.Context, lower)
}

// refusal returns the error that refuses a call, and its trailer, which may be nil.
func refusal(verdict *rpclimit.Verdict) (metadata.MD, error) {
	var trailer metadata.MD
	// told is one allocation.
	told := &struct {
		pushback [1]string
		digits   [20]byte
		fields   [2]string
		// Most values of ratelimit fit into buffer.
		buffer [72]byte
	}{}
	if ms, ok := verdict.Pushback(); ok {
		told.pushback[0] = text(strconv.AppendInt(told.digits[:0], ms, 10))
		trailer = metadata.MD{pushbackKey: told.pushback[:]}
	}
	policies, standing := verdict.AppendRateLimit(told.buffer[:0])
	told.fields[0], told.fields[1] = policies, text(standing)
	return withFields(trailer, &told.fields), status.ErrorProto(rpcstatus.Of(verdict))
}

// text returns bytes that are not written again as a string.
func text(buffer []byte) string { return unsafe.String(unsafe.SliceData(buffer), len(buffer)) }

// withFields adds the RateLimit fields to metadata. It returns nil if there is nothing to send.
func withFields(md metadata.MD, fields *[2]string) metadata.MD {
	for i, key := range [...]string{policyKey, limitKey} {
		if fields[i] == "" {
			continue
		}
		if md == nil {
			md = make(metadata.MD, len(fields))
		}
		md[key] = fields[i : i+1 : i+1]
	}
	return md
}

// codeOf returns the code that a client is told of a handler's error.
func codeOf(err error) rpclimit.Code {
	if err == nil {
		return rpclimit.CodeOK
	}
	s, ok := status.FromError(err)
	if !ok {
		s = status.FromContextError(err)
	}
	return rpclimit.Code(s.Code())
}

// orLost returns the error of a handler, or another in its place if the handler ended with the call's context
// because units in use were lost: the client has cancelled nothing.
func orLost(ctx context.Context, err error) error {
	if codeOf(err) == rpclimit.CodeCanceled && errors.Is(context.Cause(ctx), limits.ErrLost) {
		return status.Error(codes.Unavailable, limits.ErrLost.Error())
	}
	return err
}

func mustHave(guard *rpclimit.Guard, function string) {
	if guard == nil {
		panic("grpclimit." + function + ": guard is nil: want a Guard from rpclimit.New")
	}
}

func setTrailer(ctx context.Context, md metadata.MD) {
	if len(md) > 0 {
		// If this fails, there is no other way to tell the client.
		_ = grpc.SetTrailer(ctx, md)
	}
}
