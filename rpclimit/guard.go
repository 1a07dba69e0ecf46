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
	// hidden has the names of limits that clients are not told of.
	hidden map[string]bool
	fields admission.Fields

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
	g := &Guard{options: options, exempt: exempt, log: admission.NewLog(options.Logger)}
	if g.options.ClientAddr == nil {
		g.options.ClientAddr = connection
	}
	names := map[string]bool{}
	for i, limit := range limits {
		if shape.IsNil(limit) {
			return nil, bad(fmt.Sprintf("limits[%d]", i), "nil", "a rpclimit.Limit")
		}
		field := func(name string) string { return fmt.Sprintf("limits[%d].%s", i, name) }
		c, err := limit.check(i, &g.options, func(name string, value any, want string) error {
			return bad(field(name), value, want)
		})
		if err != nil {
			return nil, err
		}
		title := c.Of().Name
		if names[title] {
			return nil, bad(field("Name"), fmt.Sprintf("%q", title), "a name that no other limit has")
		}
		names[title] = true
		if c.Of().Hidden {
			if g.hidden == nil {
				g.hidden = map[string]bool{}
			}
			g.hidden[title] = true
		}
		for j, other := range g.limits {
			// If the other limit refused, RetryAfter would be too long by the units taken at the tap.
			if c.same != nil && c.same == other.same && c.atTap != other.atTap {
				return nil, bad(field("AtTap"), c.atTap, fmt.Sprintf("%t, as of limits[%d], which has the same Limiter", other.atTap, j))
			}
		}
		g.limits = append(g.limits, c)
		g.fields.Add(title)
	}
	g.open()
	return g, nil
}

// Must returns g, and panics if err is not nil. Use it for settings that are constants.
func Must(g *Guard, err error) *Guard {
	if err != nil {
		panic(err)
	}
	return g
}

func (g *Guard) open() {
	o := &g.options
	turns := admission.NewTurns(o.Spread, time.Millisecond)
	config := admission.Config[*Call, Served]{
		Cost: o.Cost, Charge: o.Charge, WaitUpTo: o.WaitUpTo, ByDeadline: true, Shadow: o.Shadow,
		Turns: turns, RetryGuess: o.RetryGuess, Log: g.log, Counters: &g.calls,
	}
	ofCall := func(c *checked) limiter { return c.limiter }
	g.whole = g.entry(config, ofCall, func(*checked) bool { return true })
	g.opening = g.entry(config, ofCall, func(c *checked) bool { return !c.ofMessage })
	g.wholeRest = g.entry(config, ofCall, func(c *checked) bool { return !c.atTap })
	g.openingRest = g.entry(config, ofCall, func(c *checked) bool { return !c.ofMessage && !c.atTap })
	g.first = g.entry(config, ofCall, func(c *checked) bool { return c.ofMessage })
	config.WaitUpTo, config.AtOnce, config.Keep = 0, true, true
	g.tap = g.entry(config, ofCall, func(c *checked) bool { return c.atTap })
	config = admission.Config[*Call, Served]{
		WaitUpTo: o.WaitUpTo, ByDeadline: true, Shadow: o.Shadow, Turns: turns, Log: g.log, Counters: &g.messages,
	}
	g.received = g.entry(config, func(c *checked) limiter { return c.received }, func(c *checked) bool { return c.received != nil })
	g.sent = g.entry(config, func(c *checked) limiter { return c.sent }, func(c *checked) bool { return c.sent != nil })
}

// entry returns a controller of the limits that has selects, or nil.
func (g *Guard) entry(config admission.Config[*Call, Served], part func(c *checked) limiter, has func(c *checked) bool) *entry {
	var all []limiter
	some := false
	for i := range g.limits {
		c := &g.limits[i]
		if some = some || has(c); has(c) {
			all = append(all, part(c))
		} else {
			all = append(all, c.limiter)
		}
	}
	if !some {
		return nil
	}
	return admission.New(config, all, func(at int) bool { return has(&g.limits[at]) })
}

// Begin decides a call. It may wait for the call's turn, and takes from all limits or none. Run the
// call if the verdict is not Refused, and end the Session when it is done. The Session may be nil,
// and may be used all the same. Limits of Key.OfMessage are decided with a stream's first message.
func (g *Guard) Begin(c *Call) (Verdict, *Session) {
	if g.exempt.has(c.Procedure) {
		return g.pass(c), nil
	}
	s := c.Tapped
	begun := false
	defer func() {
		// The call was refused, or a function of the program panicked.
		if !begun {
			s.cancel()
		}
	}()
	e := g.entryOf(c)
	var v Verdict
	var taken admission.Settlement
	if s != nil && !s.verdict.Reason.Passes() {
		// Under Shadow, a refused call takes from no limit.
		e, v = g.tap, s.verdict
	} else if v, taken = g.decide(e, c); s != nil {
		v.tapped(s)
	}
	refused := v.Refused()
	if s == nil && (taken != nil || !refused && c.Stream && (g.first != nil || g.received != nil || g.sent != nil)) {
		s = &Session{guard: g}
	}
	if s != nil && !refused {
		s.begin(c, e, taken)
	}
	g.calls.Count(&v.Verdict)
	g.tell(e, c, &v)
	if refused {
		return v, nil
	}
	begun = true
	return v, s
}

func (g *Guard) entryOf(c *Call) *entry {
	switch {
	case c.Tapped == nil && c.Stream:
		return g.opening
	case c.Tapped == nil:
		return g.whole
	case c.Stream:
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
func (g *Guard) Tap(c *Call) (Verdict, *Session) {
	if g.tap == nil || g.exempt.has(c.Procedure) {
		return g.exempted(c), nil
	}
	v, taken := g.decide(g.tap, c)
	if v.Refused() {
		g.calls.Count(&v.Verdict)
		c.counted = true
		g.tell(g.tap, c, &v)
		return v, nil
	}
	s := &Session{guard: g, verdict: v}
	s.begin(c, g.tap, taken)
	return v, s
}

// TapPanicked refuses a call for which Tap panicked as Misconfigured, also under Shadow. Adapters
// call it as they recover. The call is counted, the first panic logged, and OnVerdict, which may
// have panicked, not called. Nothing is taken: Tap calls no function of the program after a take.
func (g *Guard) TapPanicked(c *Call, cause any) Verdict {
	v := g.verdict(c, admission.Result{Verdict: limits.Verdict{Reason: limits.Misconfigured}}, nil)
	v.Shadow, v.panicked = false, true
	if !c.counted {
		g.calls.Count(&v.Verdict)
	}
	g.log.LogPanic(c.Context, cause, slog.String("procedure", admission.Cut(c.Procedure)))
	return v
}

func (g *Guard) exempted(c *Call) Verdict {
	return g.verdict(c, admission.Result{Verdict: limits.Verdict{Reason: limits.Exempt}}, nil)
}

func (g *Guard) pass(c *Call) Verdict {
	v := g.exempted(c)
	g.calls.Count(&v.Verdict)
	g.tell(nil, c, &v)
	return v
}

// decide decides a call by the limits of a controller. A nil controller admits it.
func (g *Guard) decide(e *entry, c *Call) (Verdict, admission.Settlement) {
	var r admission.Result
	switch {
	case !e.Begin(c.Context, c, &r):
	case e.Single() != nil:
		var s admission.Settlement
		r, s = e.Single().Take(c.Context, c, e, r)
		return g.verdict(c, r, nil), s
	default:
		quotas := make([]admission.Quota, len(g.limits))
		s := e.Decide(c.Context, c, &r, quotas)
		return g.verdict(c, r, quotas), s
	}
	return g.verdict(c, r, nil), nil
}

// tell reports a verdict to OnVerdict and Logger. e is nil for a call that passes.
func (g *Guard) tell(e *entry, c *Call, v *Verdict) {
	if g.options.OnVerdict != nil {
		g.options.OnVerdict(c, *v)
	}
	if e != nil && !v.Reason.Passes() {
		e.LogRefused(c.Context, c, &v.Verdict, v.binding, g.describe)
	}
}

// describe returns the attributes of a call's line before its key.
func (g *Guard) describe(c *Call) (before, after []slog.Attr) {
	client := ""
	if addr := g.options.ClientAddr.Addr(c); addr.IsValid() {
		client = addr.String()
	}
	return []slog.Attr{slog.String("procedure", admission.Cut(c.Procedure)), slog.String("client", client)}, nil
}

// background is for settlements: the call's context may have ended.
var background = context.Background()
