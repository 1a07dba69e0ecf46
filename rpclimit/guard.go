package rpclimit

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/ral-limiter/ral/internal/adapter/admission"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// Guard holds calls to limits. Call [New] to make a Guard; the zero Guard is not usable. Its methods
// are safe for concurrent use. A Guard needs no Close, but its engines do.
//
// Programs give a Guard to package grpclimit or connectlimit. Begin, Tap, TapPanicked and Taps are for
// such adapters. Stats and Metrics are for programs.
type Guard struct {
	options Options
	exempt  exemptions
	limits  []checked
	fields  admission.Fields

	// Each controller decides some limits together, or is nil.
	// whole decides about a call, and opening about a stream as it opens.
	whole, opening *entry
	// wholeRest and openingRest are the same for calls that were tapped.
	wholeRest, openingRest *entry
	// tap has the limits with AtTap.
	tap *entry
	// first has the limits of Key.OfMessage, with the first message of a stream.
	first *entry
	// received and sent decide about each message of a stream.
	received, sent *entry

	calls, messages admission.Counters
	log             *admission.Log
}

type entry = admission.Controller[*Call, Served]

// New returns up to 8 limits. A call passes, and is charged, only if all admit it, as by
// engine.TakeAll, or limits.AskAll if not all are engines. An error is a *policy.FieldError.
func New(options Options, limits ...AnyLimit) (*Guard, error) {
	bad := func(field string, value any, want string) error {
		return &policy.FieldError{Of: "rpclimit.New", Field: field, Value: value, Want: want}
	}
	exempt, err := options.validate()
	switch {
	case err != nil:
		return nil, err
	case len(limits) == 0:
		return nil, bad("limits", "empty", "1 to 8 limits")
	case len(limits) > admission.MaxLimits:
		return nil, bad("limits", fmt.Sprintf("%d long", len(limits)), "1 to 8 limits")
	}
	guard := &Guard{options: options, exempt: exempt, log: admission.NewLog(options.Logger)}
	if guard.options.ClientAddr == nil {
		guard.options.ClientAddr = connection
	}
	for i, limit := range limits {
		if shape.IsNil(limit) {
			return nil, bad(fmt.Sprintf("limits[%d]", i), "nil", "a rpclimit.Limit")
		}
		field := func(name string) string { return fmt.Sprintf("limits[%d].%s", i, name) }
		faulty := func(name string, value any, want string) error { return bad(field(name), value, want) }
		checked, err := limit.check(i, &guard.options, faulty)
		if err == nil {
			err = guard.fields.Add(checked.Of().Name, checked.Of().Hidden, faulty)
		}
		if err != nil {
			return nil, err
		}
		for j, other := range guard.limits {
			// If the other limit refused, RetryAfter would be too long by the units taken at the tap.
			if checked.same != nil && checked.same == other.same && checked.atTap != other.atTap {
				return nil, bad(field("AtTap"), checked.atTap, fmt.Sprintf("%t, as of limits[%d], which has the same Limiter", other.atTap, j))
			}
		}
		guard.limits = append(guard.limits, checked)
	}
	guard.open()
	return guard, nil
}

// Must returns guard, and panics if err is not nil. Use Must for settings that are constants.
func Must(guard *Guard, err error) *Guard {
	if err != nil {
		panic(err)
	}
	return guard
}

func (g *Guard) open() {
	options := &g.options
	turns := admission.NewTurns(options.Spread, time.Millisecond)
	config := admission.Config[*Call, Served]{
		Cost: options.Cost, Charge: options.Charge, WaitUpTo: options.WaitUpTo, ByDeadline: true, Shadow: options.Shadow,
		Turns: turns, RetryGuess: options.RetryGuess, Log: g.log, Counters: &g.calls,
	}
	ofCall := func(checked *checked) limiter { return checked.limiter }
	g.whole = g.entry(config, ofCall, func(*checked) bool { return true })
	g.opening = g.entry(config, ofCall, func(checked *checked) bool { return !checked.ofMessage })
	g.wholeRest = g.entry(config, ofCall, func(checked *checked) bool { return !checked.atTap })
	g.openingRest = g.entry(config, ofCall, func(checked *checked) bool { return !checked.ofMessage && !checked.atTap })
	g.first = g.entry(config, ofCall, func(checked *checked) bool { return checked.ofMessage })
	config.WaitUpTo, config.AtOnce, config.Keep = 0, true, true
	g.tap = g.entry(config, ofCall, func(checked *checked) bool { return checked.atTap })
	config = admission.Config[*Call, Served]{
		WaitUpTo: options.WaitUpTo, ByDeadline: true, Shadow: options.Shadow, Turns: turns, Log: g.log, Counters: &g.messages,
	}
	g.received = g.entry(config, func(checked *checked) limiter { return checked.received }, func(checked *checked) bool { return checked.received != nil })
	g.sent = g.entry(config, func(checked *checked) limiter { return checked.sent }, func(checked *checked) bool { return checked.sent != nil })
}

// entry returns a controller of the limits that has selects, or nil.
func (g *Guard) entry(config admission.Config[*Call, Served], part func(checked *checked) limiter, has func(checked *checked) bool) *entry {
	var all []limiter
	some := false
	for i := range g.limits {
		checked := &g.limits[i]
		if some = some || has(checked); has(checked) {
			all = append(all, part(checked))
		} else {
			all = append(all, checked.limiter)
		}
	}
	if !some {
		return nil
	}
	return admission.New(config, all, func(at int) bool { return has(&g.limits[at]) })
}

// Begin decides a call. Begin may wait for the call's turn, and takes from all limits or none. Run
// the call if the verdict is not Refused, and end the Session when the call is done. The Session
// may be nil, and may be used all the same. Limits of Key.OfMessage are decided with a stream's
// first message.
func (g *Guard) Begin(call *Call) (Verdict, *Session) {
	if g.exempt.has(call.Procedure) {
		return g.pass(call), nil
	}
	session := call.Tapped
	begun := false
	defer func() {
		// The call was refused, or a function of the program panicked.
		if !begun {
			session.cancel()
		}
	}()
	controller := g.entryOf(call)
	var verdict Verdict
	var taken admission.Settlement
	if session != nil && !session.verdict.Reason.Passes() {
		// Under Shadow, a refused call takes from no limit.
		controller, verdict = g.tap, session.verdict
	} else if verdict, taken = g.decide(controller, call); session != nil {
		verdict.tapped(session)
	}
	refused := verdict.Refused()
	if session == nil && (taken != nil || !refused && call.Stream && (g.first != nil || g.received != nil || g.sent != nil)) {
		session = &Session{guard: g}
	}
	if session != nil && !refused {
		session.begin(call, controller, taken)
	}
	g.calls.Count(&verdict.Verdict)
	g.tell(controller, call, &verdict)
	if refused {
		return verdict, nil
	}
	begun = true
	return verdict, session
}

func (g *Guard) entryOf(call *Call) *entry {
	switch {
	case call.Tapped == nil && call.Stream:
		return g.opening
	case call.Tapped == nil:
		return g.whole
	case call.Stream:
		return g.openingRest
	}
	return g.wholeRest
}

// Taps reports whether there are limits with AtTap.
func (g *Guard) Taps() bool { return g.tap != nil }

// Tap decides the limits with AtTap alone, and at once. Refuse the call if the verdict is Refused.
// Otherwise set Call.Tapped to the Session, nil or not, for Begin, which decides the other limits.
// If Begin is never called, as for an unknown method, the units stay taken.
//
// Functions see a Call without Message, and with Stream unset unless the caller knows it. Begin
// counts and reports a call that passes the tap.
func (g *Guard) Tap(call *Call) (Verdict, *Session) {
	if g.tap == nil || g.exempt.has(call.Procedure) {
		return g.exempted(call), nil
	}
	verdict, taken := g.decide(g.tap, call)
	if verdict.Refused() {
		g.calls.Count(&verdict.Verdict)
		call.counted = true
		g.tell(g.tap, call, &verdict)
		return verdict, nil
	}
	session := &Session{guard: g, verdict: verdict}
	session.begin(call, g.tap, taken)
	return verdict, session
}

// TapPanicked refuses a call for which Tap panicked as Misconfigured, also under Shadow. Adapters
// call TapPanicked as they recover. The call is counted, the first panic logged, and OnVerdict,
// which may have panicked, not called. Nothing is taken: Tap calls no function of the program after
// a take.
func (g *Guard) TapPanicked(call *Call, cause any) Verdict {
	verdict := g.verdict(call, admission.Result{Verdict: limits.Verdict{Reason: limits.Misconfigured}}, nil)
	verdict.Shadow, verdict.panicked = false, true
	if !call.counted {
		g.calls.Count(&verdict.Verdict)
	}
	g.log.LogPanic(call.Context, cause, slog.String("procedure", admission.Cut(call.Procedure)))
	return verdict
}

func (g *Guard) exempted(call *Call) Verdict {
	return g.verdict(call, admission.Result{Verdict: limits.Verdict{Reason: limits.Exempt}}, nil)
}

func (g *Guard) pass(call *Call) Verdict {
	verdict := g.exempted(call)
	g.calls.Count(&verdict.Verdict)
	g.tell(nil, call, &verdict)
	return verdict
}

// decide decides a call by the limits of a controller. A nil controller admits the call.
func (g *Guard) decide(controller *entry, call *Call) (Verdict, admission.Settlement) {
	var result admission.Result
	switch {
	case !controller.Begin(call.Context, call, &result):
	case controller.Single() != nil:
		var settlement admission.Settlement
		result, settlement = controller.Single().Take(call.Context, call, controller, result)
		return g.verdict(call, result, nil), settlement
	default:
		quotas := make([]admission.Quota, len(g.limits))
		settlement := controller.Decide(call.Context, call, &result, quotas)
		return g.verdict(call, result, quotas), settlement
	}
	return g.verdict(call, result, nil), nil
}

// tell reports a verdict to OnVerdict and Logger. controller is nil for a call that passes.
func (g *Guard) tell(controller *entry, call *Call, verdict *Verdict) {
	if g.options.OnVerdict != nil {
		g.options.OnVerdict(call, *verdict)
	}
	if controller != nil && !verdict.Reason.Passes() {
		controller.LogRefused(call.Context, call, &verdict.Verdict, verdict.binding, g.describe)
	}
}

// describe returns the attributes of a call's line before its key.
func (g *Guard) describe(call *Call) (before, after []slog.Attr) {
	client := ""
	if addr := g.options.ClientAddr.Addr(call); addr.IsValid() {
		client = addr.String()
	}
	return []slog.Attr{slog.String("procedure", admission.Cut(call.Procedure)), slog.String("client", client)}, nil
}

// background is for settlements: the call's context may have ended.
var background = context.Background()
