package rpclimit

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/ral-limiter/ral/internal/adapter/admission"
	"github.com/ral-limiter/ral/policy"
)

// Options configures [Limits]. The zero Options is a good choice.
type Options struct {
	// Name is the name of limits that have none of their own. The default is "default".
	Name string

	// WaitUpTo delays a call that has no room now, and a message of a stream, instead of
	// refusing it, if it can be admitted within that time and before the deadline of its
	// context. A call whose turn would come later is refused at once. Calls stand in line in
	// the order of arrival. A policy.Queue delays calls by itself, up to its own length and to
	// the deadline: what it refuses may come back after RetryAfter with as much time left. A wait
	// ends with the context, and a call that was cancelled takes nothing. The default is 0, not
	// to wait.
	WaitUpTo time.Duration

	// Cost returns the units that a call takes, or a stream as it opens. If it is nil every
	// call takes 1. A call that costs 0 passes. One that costs more than the limit allows at
	// once is NeverAdmitted. Less than 0 is an error of the program, and Misconfigured.
	Cost func(c *Call) int64

	// CostReceived and CostSent return the units that a message of a stream takes, which is
	// Call.Message. If a limit refuses a message the stream is to end. If they are nil messages
	// take nothing. What messages take is not given back.
	CostReceived, CostSent func(c *Call) int64

	// Charge returns the units that an admitted call should have taken for its Cost. It runs
	// when the call has ended, however it did: the difference to what was taken is given back
	// or charged, even if the limit is exceeded. So a stream may pay as it opens for as many
	// messages as it may have, and get back what it did not use. Units come back on the terms
	// of engine.Reservation.Keep. Less than 0 counts as 0.
	//
	// It has no effect but its result: it runs up to three times for a call, once for each group
	// of limits that were decided together, at the tap, as the call began, and with the first
	// message of a stream. Only for the last of these has c the message of a stream. If it
	// panics what it was asked about stays as taken, and the panic goes on.
	Charge func(c *Call, served Served) int64

	// Exempt lists procedures that no limit applies to, as "/package.Service/Method", or
	// "/package.Service/" for all of a service. Health checks (grpc.health.v1.Health) and
	// reflection (grpc.reflection.v1 and v1alpha) are exempt beside them, unless LimitAll is
	// set.
	Exempt   []string
	LimitAll bool

	// ClientAddr finds the address for Logger. The default is the connection's.
	ClientAddr *ClientAddr

	// Shadow decides, counts and reports, but refuses and delays nothing.
	Shadow bool

	// OnVerdict is told each verdict on a call, and on a message of a stream that takes
	// anything. The first message of a stream may have two, of the limits of Key.OfMessage and of
	// CostReceived. It runs on the call's goroutine, except that what a tap refuses is told where
	// the tap runs: in gRPC it holds up the connection there, as Logger does.
	OnVerdict func(c *Call, v Verdict)

	// Logger gets lines of level Info about refused calls, and of calls that would be refused
	// without Shadow, at most 10 each second. A line has the first 12 hexadecimal digits of the
	// key's SHA-256 hash, as keys may be secret. The first Misconfigured call of each limit also
	// gets a line of level Error, and so does the first panic at a tap of gRPC, with its stack.
	Logger *slog.Logger
}

// infrastructure lists what is exempt unless Options.LimitAll is set.
var infrastructure = []string{
	"/grpc.health.v1.Health/",
	"/grpc.reflection.v1.ServerReflection/",
	"/grpc.reflection.v1alpha.ServerReflection/",
}

// exemptions are procedures that no limit applies to.
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
	if wrong := admission.WrongName(o.Name); wrong != "" {
		return exempt, bad("Name", fmt.Sprintf("%.80q", o.Name), wrong)
	}
	switch {
	case o.WaitUpTo < 0:
		return exempt, bad("WaitUpTo", o.WaitUpTo, "a positive duration, or 0 not to wait")
	case o.ClientAddr != nil && o.ClientAddr.of == nil:
		return exempt, bad("ClientAddr", "a zero ClientAddr", "the result of NewClientAddr, or nil for the connection's address")
	}
	exempt = exemptions{map[string]bool{}, map[string]bool{}}
	add := func(procedure string) bool {
		of := service(procedure)
		if of == "" || procedure[0] != '/' || strings.Contains(of, "/") {
			return false
		}
		if strings.HasSuffix(procedure, "/") {
			exempt.services[of] = true
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
