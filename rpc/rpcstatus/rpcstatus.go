// Package rpcstatus converts verdicts of package rpclimit to google.rpc.Status with details, and tells
// which statuses of others are no limits.
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
func Of(verdict *rpclimit.Verdict) *status.Status {
	// A single allocation holds all.
	r := &struct {
		status status.Status
		parts  parts
	}{}
	r.status.Code, r.status.Message, r.status.Details = int32(verdict.Code()), verdict.Message(), r.parts.details(verdict) //nolint:gosec // a code is at most 16
	return &r.status
}

// Details returns the details of a refused call, none unless a limit refused. They name limits and
// kinds of keys, but no key or searchable hash:
//
//   - google.rpc.RetryInfo has the time until a retry is admitted or has its turn, rounded up to
//     milliseconds. Other calls may take the room first. It is left out if the time is a guess or
//     never.
//   - google.rpc.QuotaFailure has a violation for each limit that refused: quota ID (its name),
//     subject and dimension "by" (the kind of key, such as "address"), quota value (most at once).
func Details(verdict *rpclimit.Verdict) []*anypb.Any { return new(parts).details(verdict) }

var (
	retryURL = urlOf(&errdetails.RetryInfo{})
	quotaURL = urlOf(&errdetails.QuotaFailure{})
)

func urlOf(message proto.Message) string {
	return "type.googleapis.com/" + string(message.ProtoReflect().Descriptor().FullName())
}

// parts is a single heap allocation for a call's details.
type parts struct {
	all          [2]*anypb.Any
	retry, quota anypb.Any
	info         errdetails.RetryInfo
	delay        durationpb.Duration
	// Any RetryInfo fits into buffer.
	buffer [24]byte
}

func (p *parts) details(verdict *rpclimit.Verdict) []*anypb.Any {
	all := p.all[:0]
	if ms, ok := verdict.Pushback(); ok && ms > 0 {
		if value, err := p.retryInfo(ms); err == nil {
			p.retry.TypeUrl, p.retry.Value = retryURL, value
			all = append(all, &p.retry)
		}
	}
	// No call has more limits.
	var buffer [8]rpclimit.Violation
	if value := failures.marshal(verdict.AppendViolations(buffer[:0])); len(value) > 0 {
		p.quota.TypeUrl, p.quota.Value = quotaURL, value
		all = append(all, &p.quota)
	}
	if len(all) == 0 {
		return nil
	}
	return all
}

func (p *parts) retryInfo(ms int64) ([]byte, error) {
	// Not by a time.Duration, which the rounded time may exceed.
	const perSecond, perMilli = 1000, 1_000_000
	p.delay.Seconds, p.delay.Nanos = ms/perSecond, int32(ms%perSecond)*perMilli
	p.info.RetryDelay = &p.delay
	return proto.MarshalOptions{}.MarshalAppend(p.buffer[:0], &p.info)
}
