package rpclimit

import (
	"cmp"
	"reflect"

	"github.com/ral-limiter/ral/internal/adapter/admission"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// Limit is a limiter and the key that it limits calls by. Limiter and Key are required.
type Limit[K comparable] struct {
	// Name tells clients which limit refused. The name must be printable ASCII of at most 64 bytes,
	// and different for each limit. The default is Options.Name, and "default" without that. So at
	// most one limit of a Guard may go without a name.
	Name string
	// Limiter decides: an *engine.Engine, an *engine.Tiered, a *fleet.Limiter, a *single.Limiter by
	// limits.ForAnyKey, or any other limits.Limiter. Several limits may share one. Under a policy.InFlight a
	// call is in use until its handler returns, and a stream until its end.
	Limiter limits.Limiter[K]
	// Key finds the key of a call.
	Key Key[K]
	// WhenNoKey chooses the answer to a call without a key.
	WhenNoKey limits.WhenNoKey

	// Cost, CostReceived, CostSent and Charge, if not nil, replace the Options for this
	// limit. Options.CostSent does not hold for a limit of Key.OfMessage. A policy.InFlight takes no CostReceived
	// or CostSent, as its units are in use by the whole call.
	Cost                   func(c *Call) int64
	CostReceived, CostSent func(c *Call) int64
	Charge                 func(c *Call, served Served) int64

	// PolicyFor returns the call's limit, of the limiter's family, or nil for the limiter's own.
	PolicyFor func(c *Call) policy.Policy

	// Shadow tries this limit beside the others. The limit decides calls that the others admit and
	// takes from its keys, but refuses and delays none. Verdict.Shadowed and Stats.Shadowed tell
	// its refusals. Stats.ShadowFailed counts its panics and errors. If all limits have
	// Shadow, Options.Shadow is set.
	Shadow bool

	// Hidden keeps this limit's name and numbers from clients, as httplimit.Limit.Hidden does.
	Hidden bool

	// AtTap decides this limit in Guard.Tap, if the adapter has a tap, before the server has made
	// anything for the call. Its functions run before any interceptor, and see a Call without
	// Message and Stream. The limiter must be in process; it refuses calls instead of delaying
	// them, also under a policy.Queue. New refuses AtTap with Key.OfMessage, with Shadow, under a
	// policy.InFlight, or if only some limits of a Limiter have it.
	AtTap bool
}

// AnyLimit is a [Limit] of any type of key.
type AnyLimit interface {
	// check checks the limit. at is its index, and bad makes the error about a field.
	check(at int, o *Options, bad admission.FieldFault) (checked, error)
}

// limiter is a Limit with the type of its keys hidden.
type limiter = admission.Any[*Call, Served]

const wantKey = "a key, such as rpclimit.ByAddr, with its function: ByMetadata returns none for an invalid name"

type checked struct {
	// limiter is for calls.
	limiter
	// received and sent are for messages of streams, and nil if messages take nothing.
	received, sent limiter
	by             string
	ofMessage      bool
	atTap          bool
	// same is the Limiter, or nil for a Limiter that cannot be compared.
	same any
}

func (l Limit[K]) check(index int, options *Options, bad admission.FieldFault) (c checked, err error) {
	hidden := func(cost func(call *Call) int64, charge func(call *Call, served Served) int64) limiter {
		part := &admission.Limit[*Call, K, Served]{
			Parts:   admission.Parts[*Call, Served]{Name: l.Name, WhenNoKey: l.WhenNoKey, Cost: cost, Charge: charge, Shadow: l.Shadow, Hidden: l.Hidden},
			Limiter: l.Limiter, Key: l.Key.Of, PolicyFor: l.PolicyFor,
		}
		if err == nil {
			err = part.Check(index, cmp.Or(options.Name, "default"), wantKey, bad)
		}
		return part
	}
	c = checked{limiter: hidden(l.Cost, l.Charge), by: l.Key.By, ofMessage: l.Key.OfMessage, atTap: l.AtTap}
	if reflect.ValueOf(l.Limiter).Comparable() {
		c.same = l.Limiter
	}
	received, sent := l.CostReceived, l.CostSent
	inUse := c.Of().HasUnitsInUse()
	if received == nil && !inUse {
		received = options.CostReceived
	}
	if sent == nil && !inUse && !c.ofMessage {
		sent = options.CostSent
	}
	if received != nil {
		c.received = hidden(received, nil)
	}
	if sent != nil {
		c.sent = hidden(sent, nil)
	}
	switch {
	case err != nil:
	case inUse && received != nil:
		err = bad("CostReceived", "a function", "nil under a policy.InFlight, as a message has no end")
	case inUse && sent != nil:
		err = bad("CostSent", "a function", "nil under a policy.InFlight, as a message has no end")
	case inUse && c.atTap:
		err = bad("AtTap", true, "false under a policy.InFlight, as the end of a call that only the tap sees is unknown")
	case !c.atTap:
	case c.ofMessage:
		err = bad("AtTap", true, "false, as the key is found in a message, which comes later")
	case l.Shadow:
		err = bad("AtTap", true, "false, as a limit with Shadow is asked about calls that the others admit")
	case c.Remote():
		err = bad("AtTap", true, "false, as calls of the limiter may leave the process, and a tap must not block")
	}
	return c, err
}
