package rpcstatus

import (
	"fmt"
	"maps"
	"sync/atomic"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"

	"github.com/ral-limiter/ral/rpclimit"
)

var failures cache

// cache has marshalled QuotaFailures, which take long to make. It is safe for concurrent use.
type cache struct {
	// The map is never written again.
	known atomic.Pointer[map[rpclimit.Violation]string]
}

// maxFailures bounds the cache. Further failures are made for each call.
const maxFailures = 256

// marshal returns the QuotaFailure of the violations, marshalled, without those that cannot be.
func (c *cache) marshal(violations []rpclimit.Violation) (value []byte) {
	// Concatenated messages are read as a single message with all elements.
	for i := range violations {
		value = append(value, c.one(&violations[i])...)
	}
	return value
}

func (c *cache) one(violated *rpclimit.Violation) string {
	known := c.known.Load()
	if known != nil {
		if value, ok := (*known)[*violated]; ok {
			return value
		}
	}
	marshalled, err := proto.Marshal(&errdetails.QuotaFailure{Violations: []*errdetails.QuotaFailure_Violation{violation(violated)}})
	if err != nil {
		marshalled = nil
	}
	value := string(marshalled)
	if known == nil || len(*known) < maxFailures {
		more := map[rpclimit.Violation]string{}
		if known != nil {
			more = maps.Clone(*known)
		}
		more[*violated] = value
		c.known.CompareAndSwap(known, &more)
	}
	return value
}

func violation(violated *rpclimit.Violation) *errdetails.QuotaFailure_Violation {
	quotaFailure_Violation := &errdetails.QuotaFailure_Violation{
		Subject: violated.By, QuotaId: violated.Limit, QuotaValue: violated.Max, Description: fmt.Sprintf("the limit %q is exceeded", violated.Limit),
	}
	if violated.Policy != "" {
		quotaFailure_Violation.Description = fmt.Sprintf("the limit %q allows %s", violated.Limit, violated.Policy)
	}
	if violated.By != "" {
		quotaFailure_Violation.QuotaDimensions = map[string]string{"by": violated.By}
	}
	return quotaFailure_Violation
}
