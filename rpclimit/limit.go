package rpclimit

import (
	"cmp"
	"reflect"

	"github.com/ral-limiter/ral/internal/adapter/admission"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// Limit is a limiter that limits calls, and the key that it limits them by. Limiter and Key are
// required.
type Limit[K comparable] struct {
	// Name tells clients which limit refused. It must be printable ASCII of at most 64 bytes.
	// The default is Options.Name. Several limits need different names.
	Name string
	// Limiter decides: an *engine.Engine, an *engine.Tiered, a *fleet.Limiter, a
	// *single.Limiter by limits.ForAnyKey, or any other limits.Limiter. Several limits may share
	// one.
	Limiter limits.Limiter[K]
	// Key finds the key of a call.
	Key Key[K]
	// WhenNoKey chooses the answer to a call without a key.
	WhenNoKey limits.WhenNoKey

	// Cost, CostReceived, CostSent and Charge are those of this limit, in place of those of the
	// Options: see there. If they are nil those of the options hold, except that
	// Options.CostSent does not hold for a limit of Key.OfMessage.
	Cost                   func(c *Call) int64
	CostReceived, CostSent func(c *Call) int64
	Charge                 func(c *Call, served Served) int64

	// PolicyFor returns the limit that holds for the call, as for a plan that its identity
	// names, or nil for the limiter's own. It must be of the family of that: see limits.Call.
	PolicyFor func(c *Call) policy.Policy

	// Shadow tries this limit beside the others: it is decided for the calls that the others
	// admit, takes from its keys, and refuses and delays none. Verdict.Shadowed and
	// Stats.Shadowed tell what it would have refused. A panic or an error of it ends there, and
	// is counted by Stats.ShadowFailed. If all limits have Shadow, it is that of the options.
	Shadow bool

	// AtTap decides this limit in Limits.Tap, before the server has made anything for the
	// call, if the adapter has such a place. Otherwise it is decided with the others. Its
	// functions see a Call without Message and with Stream unset, before any interceptor. A tap
	// must not block: the limiter must be in process, the limit never waits there whatever
	// WaitUpTo is, and a policy.Queue refuses what it would delay. New refuses it together with
	// Key.OfMessage and Shadow, and for one of two limits of the same Limiter: of a call that the
	// other one refuses, the time to wait would be too long by what the tap has taken.
	AtTap bool
}

// AnyLimit is a [Limit] of any type of key.
type AnyLimit interface {
	// check returns the limit as limiters. at is its index, and bad makes the error about a field.
	check(at int, o *Options, bad admission.FieldFault) (checked, error)
}

// limiter is a Limit with the type of its keys hidden.
type limiter = admission.Any[*Call, Served]

const wantKey = "a key, such as rpclimit.ByAddr, with its function: ByMetadata returns none for an invalid name"

// checked is a Limit whose fields are valid.
type checked struct {
	limiter                // for calls
	received, sent limiter // for messages of streams, nil if they take nothing
	by             string
	ofMessage      bool
	atTap          bool
	same           any // the Limiter, or nil if it cannot be compared
}

func (l Limit[K]) check(at int, o *Options, bad admission.FieldFault) (c checked, err error) {
	hidden := func(cost func(c *Call) int64, charge func(c *Call, served Served) int64) limiter {
		of := &admission.Limit[*Call, K, Served]{
			Parts:   admission.Parts[*Call, Served]{Name: l.Name, WhenNoKey: l.WhenNoKey, Cost: cost, Charge: charge, Shadow: l.Shadow},
			Limiter: l.Limiter, Key: l.Key.Of, PolicyFor: l.PolicyFor,
		}
		if err == nil {
			err = of.Check(at, cmp.Or(o.Name, "default"), wantKey, bad)
		}
		return of
	}
	c = checked{limiter: hidden(l.Cost, l.Charge), by: l.Key.By, ofMessage: l.Key.OfMessage, atTap: l.AtTap}
	if reflect.ValueOf(l.Limiter).Comparable() {
		c.same = l.Limiter
	}
	if cost := either(l.CostReceived, o.CostReceived); cost != nil {
		c.received = hidden(cost, nil)
	}
	sent := l.CostSent
	if sent == nil && !c.ofMessage {
		sent = o.CostSent
	}
	if sent != nil {
		c.sent = hidden(sent, nil)
	}
	switch {
	case err != nil:
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

// either returns own, or common if it is nil.
func either(own, common func(c *Call) int64) func(c *Call) int64 {
	if own != nil {
		return own
	}
	return common
}
