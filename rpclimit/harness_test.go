package rpclimit

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/testkit/admissiontest"
	"github.com/ral-limiter/ral/policy"
)

func open[K comparable](t testing.TB, p policy.Policy) *engine.Engine[K] {
	t.Helper()
	return admissiontest.NewEngine[K](t, p)
}

// md has metadata by names in lower case, as gRPC does.
type md map[string][]string

func (m md) Values(lower, _ string) []string { return m[lower] }

var (
	alice = netip.MustParseAddr("192.0.2.1")
	bob   = netip.MustParseAddr("192.0.2.2")
)

const place = "/shop.Orders/Place"

// from returns a call from an address, with metadata in pairs.
func from(peer netip.Addr, metadata ...string) *Call {
	h := md{}
	for i := 0; i < len(metadata); i += 2 {
		h[metadata[i]] = append(h[metadata[i]], metadata[i+1])
	}
	return &Call{Context: context.Background(), Procedure: place, Peer: peer, Header: h}
}

func stream(c *Call) *Call {
	c.Stream = true
	return c
}

func within(t testing.TB, c *Call, d time.Duration) *Call {
	ctx, cancel := context.WithTimeout(c.Context, d)
	t.Cleanup(cancel)
	c.Context = ctx
	return c
}

// refusedBy checks that an error is a *policy.FieldError about a field.
func refusedBy(t *testing.T, err error, owner, field string) {
	t.Helper()
	var fault *policy.FieldError
	if assert.ErrorAs(t, err, &fault, field) {
		assert.Equal(t, owner, fault.Of)
		assert.Equal(t, field, fault.Field)
		assert.NotEmpty(t, fault.Want)
	}
}

const unauthenticated Code = 16

func rateLimit(v *Verdict) (policies, standing string) {
	policies, b := v.AppendRateLimit(nil)
	return policies, string(b)
}
