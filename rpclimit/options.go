package rpclimit

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/ral-limiter/ral/internal/adapter/admission"
	"github.com/ral-limiter/ral/policy"
)

// Options configures [Guard]. The zero Options is a good choice.
type Options struct {
	// Name is the name of limits that have no Limit.Name. The default is "default".
	Name string

	// WaitUpTo, if not 0, delays a call or message that has no room now but can be admitted within
	// that time and before its deadline. Others are refused at once. Calls wait in order of
	// arrival; if cancelled they take nothing. A policy.Queue delays calls by itself, up to its own
	// length and the deadline. A call that the queue refuses may come back after RetryAfter with as
	// much time left.
	WaitUpTo time.Duration

	// Spread, if not 0, tells the refused calls of a key a turn each, to the millisecond: see
	// httplimit.Options. RetryInfo, grpc-retry-pushback-ms, Verdict.Retry and the fields of Connect
	// have it. The limits of an engine.Tiered have no turns: give each a Limit.
	Spread time.Duration

	// RetryGuess bounds the time after which a call is told to come back that a limit of units in use
	// (policy.InFlight) refuses, as httplimit.Options.RetryGuess does. 0 is a second.
	RetryGuess time.Duration

	// Cost returns the units that a call takes, or a stream as it opens. nil means 1. A cost of 0
	// passes unless the key is blocked. More than the limit allows at once is NeverAdmitted. Less
	// than 0 is Misconfigured.
	Cost func(c *Call) int64

	// CostReceived and CostSent return the units, never given back, of a stream's Call.Message. nil
	// means 0. If a limit refuses a message the stream is to end. These costs do not hold for a
	// policy.InFlight, whose units are in use by the whole call.
	CostReceived, CostSent func(c *Call) int64

	// Charge returns the units that an admitted call should have taken for its Cost. Charge runs
	// however the call has ended. The difference is charged even if the limit is exceeded, or given
	// back on the terms of engine.Reservation.Keep. So a stream may pay as it opens, and get unused
	// units back. Less than 0 counts as 0.
	//
	// Charge does not run for a call of which no limit holds units, since the call is refused,
	// exempt, or passes above its limit by Shadow, nor does Limit.Charge if that limit holds none. A
	// Cost of 0 holds 0 units.
	//
	// Charge must have no side effects: it runs once for the limits decided at the tap, at the
	// start and at the first message. Call.Message of a stream is set only in the last case. If
	// Charge panics those units stay taken, and the panic goes on.
	Charge func(c *Call, served Served) int64

	// Exempt lists procedures without limits, as "/package.Service/Method", or "/package.Service/"
	// for all of a service. Unless LimitAll is set, health checks (grpc.health.v1.Health) and
	// reflection (grpc.reflection.v1 and v1alpha) are exempt, too.
	Exempt   []string
	LimitAll bool

	// ClientAddr finds the address for Logger. The default is the connection's.
	ClientAddr *ClientAddr

	// Shadow decides, counts and reports, but refuses and delays nothing.
	Shadow bool

	// OnVerdict, if not nil, is called with each verdict on a call, and on a message that takes
	// units. A first message may have two, of the limits of Key.OfMessage and of CostReceived.
	// OnVerdict runs on the call's goroutine, or at gRPC's tap, where it and Logger hold up the
	// connection.
	OnVerdict func(c *Call, v Verdict)

	// Logger, if not nil, receives a line of level Info for calls that are refused, or would be
	// without Shadow, at most 10 a second, with the first 12 hex digits of the key's SHA-256 hash.
	// A limit's first Misconfigured call, and the first panic at a tap, get a line of level Error.
	Logger *slog.Logger
}

// infrastructure is exempt unless Options.LimitAll is set.
var infrastructure = []string{
	"/grpc.health.v1.Health/",
	"/grpc.reflection.v1.ServerReflection/",
	"/grpc.reflection.v1alpha.ServerReflection/",
}

type exemptions struct {
	procedures, services map[string]bool
}

func (e *exemptions) has(procedure string) bool {
	return len(e.services) > 0 && e.services[service(procedure)] || len(e.procedures) > 0 && e.procedures[procedure]
}

func (o *Options) validate() (exempt exemptions, err error) {
	bad := func(field string, value any, want string) error {
		return &policy.FieldError{Of: "rpclimit.Options", Field: field, Value: value, Want: want}
	}
	isZero := o.ClientAddr != nil && o.ClientAddr.finder == nil
	if err := admission.CheckOptions(o.Name, o.WaitUpTo, o.Spread, o.RetryGuess, isZero, bad); err != nil {
		return exempt, err
	}
	exempt = exemptions{map[string]bool{}, map[string]bool{}}
	add := func(procedure string) bool {
		name := service(procedure)
		if name == "" || procedure[0] != '/' || strings.Contains(name, "/") {
			return false
		}
		if strings.HasSuffix(procedure, "/") {
			exempt.services[name] = true
		} else {
			exempt.procedures[procedure] = true
		}
		return true
	}
	if !o.LimitAll {
		for _, procedure := range infrastructure {
			add(procedure)
		}
	}
	for i, procedure := range o.Exempt {
		if !add(procedure) {
			return exempt, bad(fmt.Sprintf("Exempt[%d]", i), fmt.Sprintf("%.80q", procedure),
				`"/package.Service/Method", or "/package.Service/" for all of its methods`)
		}
	}
	return exempt, nil
}
