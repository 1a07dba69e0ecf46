package rpcstatus

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/testkit/admissiontest"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/rpclimit"
)

// details returns the delay of the RetryInfo, nil if there is none, and the violations.
func details(t *testing.T, all []*anypb.Any) (delay *time.Duration, violations []*errdetails.QuotaFailure_Violation) {
	t.Helper()
	for _, a := range all {
		m := must.Get(a.UnmarshalNew())
		switch m := m.(type) {
		case *errdetails.RetryInfo:
			d := m.GetRetryDelay().AsDuration()
			delay = &d
		case *errdetails.QuotaFailure:
			violations = append(violations, m.GetViolations()...)
		}
	}
	return delay, violations
}

func open(t *testing.T, p policy.Policy) *engine.Engine[string] {
	t.Helper()
	now := policy.Instant(time.Hour)
	e := must.Get(engine.New[string](engine.Config{Policy: p, Clock: func() policy.Instant { return now }}))
	t.Cleanup(func() { assert.NoError(t, e.Close()) })
	return e
}

func call(cost int64) *rpclimit.Call {
	return &rpclimit.Call{Context: context.Background(), Procedure: "/a.B/C", Message: cost}
}

func cost(c *rpclimit.Call) int64 { return c.Message.(int64) }

func TestDelayIsRoundedUpToMilliseconds(t *testing.T) {
	for _, c := range []struct{ per, want time.Duration }{
		{time.Millisecond, time.Millisecond},
		{time.Millisecond + 1, 2 * time.Millisecond},
		{1500 * time.Millisecond, 1500 * time.Millisecond},
		{time.Hour + 1, time.Hour + time.Millisecond},
	} {
		l := rpclimit.Must(rpclimit.New(rpclimit.Options{Cost: cost}, rpclimit.Limit[string]{
			Limiter: open(t, policy.Must(policy.FixedWindow(1, c.per))), Key: rpclimit.ByProcedure,
		}))
		v, _ := l.Begin(call(1))
		assert.Nil(t, Details(&v))
		v, _ = l.Begin(call(1))
		delay, _ := details(t, Details(&v))
		require.NotNil(t, delay, c.per)
		assert.Equal(t, c.want, *delay, c.per)
	}
}

// Package anypb would make the same details, cached or not. Keys are not told.
func TestEachLimitThatRefusedIsNamed(t *testing.T) {
	limitOf := func(name string, n int64, key rpclimit.Key[string]) rpclimit.Limit[string] {
		return rpclimit.Limit[string]{Name: name, Limiter: open(t, policy.Must(policy.FixedWindow(n, time.Minute))), Key: key}
	}
	l := rpclimit.Must(rpclimit.New(rpclimit.Options{Cost: cost},
		limitOf("small", 1, rpclimit.ByProcedure), limitOf("large", 100, rpclimit.ByService),
		limitOf("secret", 1, rpclimit.Key[string]{Of: func(*rpclimit.Call) string { return "s3cret" }})))
	v, _ := l.Begin(call(1))
	require.False(t, v.Refused())
	failure := &errdetails.QuotaFailure{Violations: []*errdetails.QuotaFailure_Violation{
		{
			Subject: "method", Description: `the limit "small" allows window 1/m`, QuotaId: "small",
			QuotaDimensions: map[string]string{"by": "method"}, QuotaValue: 1,
		},
		{Description: `the limit "secret" allows window 1/m`, QuotaId: "secret", QuotaValue: 1},
	}}
	for range 2 {
		v, _ = l.Begin(call(1))
		s := Of(&v)
		assert.Equal(t, int32(rpclimit.CodeResourceExhausted), s.GetCode())
		assert.Equal(t, v.Message(), s.GetMessage())
		all := s.GetDetails()
		require.Len(t, all, 2)
		assert.True(t, proto.Equal(made(t, &errdetails.RetryInfo{RetryDelay: durationpb.New(time.Minute)}), all[0]), all[0])
		assert.Equal(t, quotaURL, all[1].GetTypeUrl())
		got := &errdetails.QuotaFailure{}
		require.NoError(t, all[1].UnmarshalTo(got))
		assert.True(t, proto.Equal(failure, got), got)
		// The bytes are the caller's own.
		clear(all[1].GetValue())
	}

	v, _ = l.Begin(call(101))
	delay, all := details(t, Details(&v))
	assert.Nil(t, delay)
	require.NotEmpty(t, all)
	assert.Equal(t, int64(1), all[0].GetQuotaValue())
}

func made(t *testing.T, m proto.Message) *anypb.Any { return must.Get(anypb.New(m)) }

func TestDelayIsLeftOutIfItIsAGuess(t *testing.T) {
	for source, tells := range map[limits.Source]bool{limits.SourceProcess: true, limits.SourceClosed: false} {
		for _, after := range []time.Duration{time.Second, math.MaxInt64 - 1} {
			limiter := admissiontest.NewFake[string](t, 1, policy.Decision{Limit: 1, RetryAfter: after}, source, tells)
			l := rpclimit.Must(rpclimit.New(rpclimit.Options{}, rpclimit.Limit[string]{Key: rpclimit.ByProcedure, Limiter: limiter}))
			v, _ := l.Begin(call(1))
			require.True(t, v.Refused())
			delay, _ := details(t, Details(&v))
			assert.Equal(t, tells, delay != nil)
			if tells {
				assert.GreaterOrEqual(t, *delay, after, "it is rounded down")
			} else {
				assert.Equal(t, int32(rpclimit.CodeUnavailable), Of(&v).GetCode())
				assert.Empty(t, Details(&v))
			}
		}
	}
}

// Promise: Refusal details follow the policy that holds.
func TestDetailsFollowThePolicy(t *testing.T) {
	e := open(t, policy.Must(policy.FixedWindow(1, time.Hour)))
	var plan policy.Policy
	l := rpclimit.Must(rpclimit.New(rpclimit.Options{Cost: cost}, rpclimit.Limit[string]{
		Limiter: e, Key: rpclimit.ByProcedure, PolicyFor: func(*rpclimit.Call) policy.Policy { return plan },
	}))
	violation := func() *errdetails.QuotaFailure_Violation {
		v, _ := l.Begin(call(100))
		require.True(t, v.Refused())
		_, all := details(t, Details(&v))
		require.Len(t, all, 1)
		return all[0]
	}
	for range 2 {
		plan = nil
		assert.Equal(t, `the limit "default" allows window 1/h`, violation().GetDescription())
		plan = policy.Must(policy.FixedWindow(2, time.Hour))
		assert.Equal(t, `the limit "default" allows window 2/h`, violation().GetDescription())
		assert.Equal(t, int64(2), violation().GetQuotaValue())
	}
	plan = nil
	require.NoError(t, e.SetPolicy(policy.Must(policy.FixedWindow(3, time.Hour))))
	assert.Equal(t, `the limit "default" allows window 3/h`, violation().GetDescription())
	assert.Equal(t, int64(3), violation().GetQuotaValue())
}

// Promise: At most 256 refusals' details are kept.
func TestFailuresAreBounded(t *testing.T) {
	var c cache
	for range 2 {
		for i := range 2 * maxFailures {
			violation := rpclimit.Violation{Limit: fmt.Sprint("limit", i), Max: int64(i)}
			got := &errdetails.QuotaFailure{}
			require.NoError(t, proto.Unmarshal(c.marshal([]rpclimit.Violation{violation}), got))
			require.Len(t, got.GetViolations(), 1)
			assert.Equal(t, violation.Limit, got.GetViolations()[0].GetQuotaId())
			assert.Equal(t, violation.Max, got.GetViolations()[0].GetQuotaValue())
		}
		assert.Len(t, *c.known.Load(), maxFailures)
	}
}

func TestFailureThatCannotBeMarshalledIsLeftOut(t *testing.T) {
	var c cache
	bad, good := rpclimit.Violation{Limit: "a", Policy: "\xff"}, rpclimit.Violation{Limit: "b", Policy: "b"}
	for range 2 {
		assert.Empty(t, c.marshal([]rpclimit.Violation{bad}))
		got := &errdetails.QuotaFailure{}
		require.NoError(t, proto.Unmarshal(c.marshal([]rpclimit.Violation{bad, good}), got))
		require.Len(t, got.GetViolations(), 1)
		assert.Equal(t, "b", got.GetViolations()[0].GetQuotaId())
	}
}

func TestAnyRetryInfoFits(t *testing.T) {
	p := &parts{}
	value, err := p.retryInfo(math.MaxInt64)
	require.NoError(t, err)
	assert.Same(t, &p.buffer[0], &value[0])
}
