package rpcstatus

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"

	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/rpclimit"
)

// Promise: Refusal details follow the policy that holds.
func TestDetailsFollowThePolicy(t *testing.T) {
	e := open(t, policy.Must(policy.FixedWindow(1, time.Hour)))
	var plan policy.Policy
	l := rpclimit.Must(rpclimit.New(rpclimit.Options{Cost: cost}, rpclimit.Limit[string]{
		Limiter: e, Key: rpclimit.ByProcedure, PolicyFor: func(*rpclimit.Call) policy.Policy { return plan },
	}))
	told := func() *errdetails.QuotaFailure_Violation {
		v, _ := l.Begin(call(100))
		require.True(t, v.Refused())
		_, all := details(t, Details(&v))
		require.Len(t, all, 1)
		return all[0]
	}
	for range 2 {
		plan = nil
		assert.Equal(t, `the limit "default" allows window 1/h`, told().GetDescription())
		plan = policy.Must(policy.FixedWindow(2, time.Hour))
		assert.Equal(t, `the limit "default" allows window 2/h`, told().GetDescription())
		assert.Equal(t, int64(2), told().GetQuotaValue())
	}
	plan = nil
	require.NoError(t, e.SetPolicy(policy.Must(policy.FixedWindow(3, time.Hour))))
	assert.Equal(t, `the limit "default" allows window 3/h`, told().GetDescription())
	assert.Equal(t, int64(3), told().GetQuotaValue())
}

// Promise: At most 256 refusals' details are kept.
func TestFailuresAreBounded(t *testing.T) {
	var c cache
	for range 2 {
		for i := range 2 * mostFailures {
			of := rpclimit.Violation{Limit: fmt.Sprint("limit", i), Max: int64(i)}
			got := &errdetails.QuotaFailure{}
			require.NoError(t, proto.Unmarshal(c.of([]rpclimit.Violation{of}), got))
			require.Len(t, got.GetViolations(), 1)
			assert.Equal(t, of.Limit, got.GetViolations()[0].GetQuotaId())
			assert.Equal(t, of.Max, got.GetViolations()[0].GetQuotaValue())
		}
		assert.Len(t, *c.known.Load(), mostFailures)
	}
}

func TestFailureThatCannotBeMarshalledIsLeftOut(t *testing.T) {
	var c cache
	bad, good := rpclimit.Violation{Limit: "a", Policy: "\xff"}, rpclimit.Violation{Limit: "b", Policy: "b"}
	for range 2 {
		assert.Empty(t, c.of([]rpclimit.Violation{bad}))
		got := &errdetails.QuotaFailure{}
		require.NoError(t, proto.Unmarshal(c.of([]rpclimit.Violation{bad, good}), got))
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
