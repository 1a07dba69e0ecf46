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
	known atomic.Pointer[map[rpclimit.Violation]string] // never written again
}

// mostFailures bounds the cache. Further failures are made for each call.
const mostFailures = 256

// of returns the QuotaFailure of the violations, marshalled, without those that cannot be.
func (c *cache) of(violations []rpclimit.Violation) (value []byte) {
	// Concatenated messages are read as a single message with all elements.
	for i := range violations {
		value = append(value, c.one(&violations[i])...)
	}
	return value
}

func (c *cache) one(of *rpclimit.Violation) string {
	known := c.known.Load()
	if known != nil {
		if value, ok := (*known)[*of]; ok {
			return value
		}
	}
	marshalled, err := proto.Marshal(&errdetails.QuotaFailure{Violations: []*errdetails.QuotaFailure_Violation{violation(of)}})
	if err != nil {
		marshalled = nil
	}
	value := string(marshalled)
	if known == nil || len(*known) < mostFailures {
		more := map[rpclimit.Violation]string{}
		if known != nil {
			more = maps.Clone(*known)
		}
		more[*of] = value
		c.known.CompareAndSwap(known, &more)
	}
	return value
}

func violation(of *rpclimit.Violation) *errdetails.QuotaFailure_Violation {
	v := &errdetails.QuotaFailure_Violation{
		Subject: of.By, QuotaId: of.Limit, QuotaValue: of.Max, Description: fmt.Sprintf("the limit %q is exceeded", of.Limit),
	}
	if of.Policy != "" {
		v.Description = fmt.Sprintf("the limit %q allows %s", of.Limit, of.Policy)
	}
	if of.By != "" {
		v.QuotaDimensions = map[string]string{"by": of.By}
	}
	return v
}
