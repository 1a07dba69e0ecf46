// Package rpcstatus tells clients of gRPC and Connect why a limit refuses their call: the verdicts of package rpclimit
// as google.rpc.Status with its details. Adapters for both frameworks build on it.
package rpcstatus

import (
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ral-limiter/ral/rpclimit"
)

// Of returns the status of a refused call: the verdict's Code and Message, and its Details.
func Of(v *rpclimit.Verdict) *status.Status {
	r := &struct { // one piece of the heap
		status status.Status
		parts  parts
	}{}
	r.status.Code, r.status.Message, r.status.Details = int32(v.Code()), v.Message(), r.parts.of(v) //nolint:gosec // a code is at most 16
	return &r.status
}

// Details returns the details of a refused call. They name the limits and what these go by, and no key, not even as a
// hash, in which an address could be searched for:
//
//   - google.rpc.RetryInfo has the time until a retry is admitted, rounded up to whole milliseconds. It is left out if
//     that time is a guess, or if the limit never admits the call. Other calls may take the room first.
//   - google.rpc.QuotaFailure has a violation for each limit that refused. The quota ID is the limit's name, the
//     subject and the dimension "by" what it goes by, such as "address", and the quota value the most units that it
//     admits at once.
//
// A call that was refused for another reason than a limit has no details.
func Details(v *rpclimit.Verdict) []*anypb.Any { return new(parts).of(v) }

var (
	retryURL = urlOf(&errdetails.RetryInfo{})
	quotaURL = urlOf(&errdetails.QuotaFailure{})
)

// urlOf returns the type of a message as anypb.New writes it.
func urlOf(m proto.Message) string {
	return "type.googleapis.com/" + string(m.ProtoReflect().Descriptor().FullName())
}

// parts is what the details of a call need of the heap.
type parts struct {
	all          [2]*anypb.Any
	retry, quota anypb.Any
	info         errdetails.RetryInfo
	delay        durationpb.Duration
	buffer       [24]byte // any RetryInfo fits
}

// of returns the details. It is called once.
func (p *parts) of(v *rpclimit.Verdict) []*anypb.Any {
	all := p.all[:0]
	if ms, ok := v.Pushback(); ok && ms > 0 {
		if value, err := p.retryInfo(ms); err == nil {
			p.retry.TypeUrl, p.retry.Value = retryURL, value
			all = append(all, &p.retry)
		}
	}
	var buffer [8]rpclimit.Violation // the most limits that there are
	if value := failures.of(v.AppendViolations(buffer[:0])); len(value) > 0 {
		p.quota.TypeUrl, p.quota.Value = quotaURL, value
		all = append(all, &p.quota)
	}
	if len(all) == 0 {
		return nil
	}
	return all
}

// retryInfo returns a RetryInfo, marshalled.
func (p *parts) retryInfo(ms int64) ([]byte, error) {
	// Not by way of a time.Duration: rounded up it may be longer than the longest one.
	const perSecond, perMilli = 1000, 1_000_000
	p.delay.Seconds, p.delay.Nanos = ms/perSecond, int32(ms%perSecond)*perMilli
	p.info.RetryDelay = &p.delay
	return proto.MarshalOptions{}.MarshalAppend(p.buffer[:0], &p.info)
}
