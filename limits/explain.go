package limits

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/ral-limiter/ral/internal/adapter/binding"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/policy"
)

// explainer is implemented by limiters that can explain a key from this process's state:
// engine.Engine and engine.Tiered.
type explainer[K comparable] interface {
	// Explain returns why a call for the key is admitted or refused now. Explain takes nothing,
	// opens no key, never waits for the limit, and is not counted.
	Explain(key K) Explanation
}

// remoteExplainer is the explainer of limiters that may ask another process, such as a fleet or a Trial.
type remoteExplainer[K comparable] interface {
	// Explain is as in explainer. The context bounds the time for which another process is asked. If that
	// process does not answer, there is no error. Any error is as for Limiter.Admit.
	Explain(ctx context.Context, key K) (Explanation, error)
}

// Explanation is a copy of a key's state, and tells why a call for the key is admitted or refused.
// String omits unknown facts. The zero Explanation describes a limiter without a limit.
type Explanation struct {
	// Name is the name of the limiter, such as Config.Name of an engine, or "".
	Name string
	// Limit is the limit that holds for the key. Limit is nil if Each has several.
	Limit policy.Policy
	// Known is false if it is certain that nothing is recorded for the key, neither use nor block.
	Known bool

	// Decision is the decision on a call for one unit now, behind the calls that wait in this process.
	// Wait is the delay of an allowed call. RetryAfter is the delay of a refused call, or 0 if it is
	// unknown. Remaining and ResetAfter describe the key before that call. Unless Exact, the figures do
	// not describe the whole limit. Under several limits the call takes of all or none, as by
	// engine.Tiered.Take.
	policy.Decision
	*Provenance

	// Used is the number of units in use, and Of the highest possible Remaining. Both are 0 if
	// unknown, for example for a fleet while servers hold leases or Redis is away, and with several limits.
	Used, Of int64
	// OldestMin and OldestMax bound the time for which the oldest unit in use of a policy.InFlight has been in
	// use. They differ because the policy counts that time in parts of its longest time. Both are 0 if no unit is
	// in use, and under other limits.
	OldestMin, OldestMax time.Duration
	// Returns tells when units come back if no call takes meanwhile, but not before the end of a block.
	// It has at most 16 entries: the first return, the last, and some between. Returns is empty if unknown.
	Returns []Return
	// Blocked is the time left of the key's block. Without Redis it is the block that this server last knew of.
	Blocked time.Duration
	// Waiting is the number of calls in the key's line in this process.
	Waiting int
	// Shadow reports whether every call passes at once, whatever the limit decides.
	Shadow bool

	// Each explains the key under each of several limits. Binding is the index of the limit that
	// decides, or -1. If limits refuse a unit now, that is the refusing limit with the longest wait, and
	// otherwise the limit with the least share left.
	Each    []Explanation
	Binding int
	// Candidate explains the key under a Trial's candidate. Candidate is nil without a candidate,
	// if the key is not tried, or if the candidate failed. Several candidates form a list.
	Candidate *Explanation
}

// Return tells when units come back, and how many units there are then.
type Return struct {
	// After is the time from the moment of the Explanation.
	After time.Duration
	// Remaining is the Remaining of a look at that time. A nanosecond earlier it is less. Under a Bursty or
	// a WarmingUp, a single call may take more units than Remaining.
	Remaining int64
}

// maxReturns is the most entries of Explanation.Returns.
const maxReturns = 16

// Explain explains a key of any limiter. An engine.Engine, an engine.Tiered, a fleet.Limiter, a [Trial] and a
// single.Limiter, also inside of a [ForAnyKey], have a method Explain of their own. For any other limiter, Explain
// looks at the key, and the look may leave the process. Such an Explanation has no Returns, and often a RetryAfter
// of 0. The error is the limiter's.
func Explain[K comparable](ctx context.Context, limiter Limiter[K], key K) (Explanation, error) {
	switch e := limiter.(type) {
	case explainer[K]:
		return e.Explain(key), nil
	case remoteExplainer[K]:
		return e.Explain(ctx, key)
	// A limiter without keys, such as a single.Limiter, explains itself.
	case interface{ Explain() Explanation }:
		return e.Explain(), nil
	case keyless[K]:
		return Explain(ctx, e.only, struct{}{})
	}
	answer, err := limiter.Admit(ctx, key, 0)
	if err != nil {
		return Explanation{Binding: none}, err
	}
	explanation := Explanation{Limit: limiter.LimitFor(key), Binding: none, Known: true, Decision: answer.Decision, Provenance: answer.Provenance}
	if explanation.Limit != nil {
		explanation.Of = shape.AtOnce(explanation.Limit)
		explanation.Used = max(explanation.Of-explanation.Remaining, 0)
		// A look is allowed even if no unit is left.
		explanation.Allowed = explanation.Allowed && (explanation.Remaining > 0 || explanation.Limit.Delays())
	}
	return explanation, nil
}

// ExplainWord is for limiters. It explains a key by its word under a limit, for a call of n units.
// ExplainWord sets Limit, the Decision, Used, Of, Returns and Blocked. blocked is the time left of the
// key's block, or 0.
func ExplainWord(limit policy.Policy, word uint64, now policy.Instant, n int64, blocked time.Duration) Explanation {
	explanation := Explanation{Limit: limit, Binding: none, Of: shape.AtOnce(limit)}
	_, explanation.Decision = limit.Take(word, now, 0, 0)
	_, call := limit.Take(word, now, n, 0)
	explanation.Allowed, explanation.Wait, explanation.RetryAfter = call.Allowed, call.Wait, call.RetryAfter
	explanation.Used = explanation.Of - explanation.Remaining
	if l, ok := limit.(interface {
		InUse(word uint64, now policy.Instant) (n int64, from, to time.Duration)
	}); ok {
		explanation.Used, explanation.OldestMin, explanation.OldestMax = l.InUse(word, now)
	}
	explanation.Block(blocked)
	explanation.Returns = returns(limit, word, now, explanation.Of, explanation.ResetAfter, blocked)
	return explanation
}

// Block is for limiters. It marks the key as blocked for that much longer. Block does nothing if blocked
// is 0.
func (x *Explanation) Block(blocked time.Duration) {
	if blocked <= 0 {
		return
	}
	x.Known, x.Blocked, x.Allowed, x.Remaining, x.Wait = true, blocked, false, 0, 0
	x.RetryAfter, x.ResetAfter = max(x.RetryAfter, blocked), max(x.ResetAfter, blocked)
}

// Line is for limiters. It sets the number of waiting calls. turn is the time that a new call would wait
// behind them, and a refusal lasts at least that long.
func (x *Explanation) Line(waiting int, turn time.Duration) {
	x.Waiting = waiting
	if !x.Allowed {
		x.RetryAfter = max(x.RetryAfter, turn)
	}
}

// returns computes Explanation.Returns of a key. reset is the ResetAfter of a look now, and blocked the time left of
// the key's block.
func returns(limit policy.Policy, word uint64, now policy.Instant, capacity int64, reset, blocked time.Duration) (all []Return) {
	last := min(int64(reset), math.MaxInt64-int64(now))
	look := func(after int64) int64 {
		if after < int64(blocked) {
			return 0
		}
		_, decision := limit.Take(word, now+policy.Instant(after), 0, 0)
		return decision.Remaining
	}
	remaining := look(0)
	missing, from := capacity-remaining, int64(0)
	for len(all) < maxReturns && remaining < capacity {
		// The first entry is the next unit. The others divide the rest into equal parts.
		want := remaining + 1
		if len(all) > 0 {
			want = max(want, capacity-missing+int64(float64(missing)*float64(len(all))/(maxReturns-1)))
		}
		want = min(want, capacity)
		first, ok := shape.Earliest(look, want, from, last)
		if !ok {
			// Time has ended, or the units never come back.
			break
		}
		remaining, from = look(first), first
		all = append(all, Return{time.Duration(first), remaining})
	}
	return all
}

// Together explains a key under several limits, from its explanation under each. A call on several limits never waits: a limit
// that would delay the call refuses, and Each reports the delay as RetryAfter.
func Together(each ...Explanation) Explanation {
	each = slices.Clone(each)
	explanation := Explanation{Each: each}
	explanation.Allowed = len(each) > 0
	for i := range each {
		decision := &each[i].Decision
		if decision.Allowed && decision.Wait > 0 {
			decision.Allowed, decision.RetryAfter = false, decision.Wait
		}
		decision.Wait = 0
		if i == 0 {
			explanation.Limit, explanation.Remaining = nil, decision.Remaining
			explanation.Decision.Limit = decision.Limit
		}
		explanation.Decision.Limit = min(explanation.Decision.Limit, decision.Limit)
		explanation.Allowed, explanation.Known = explanation.Allowed && decision.Allowed, explanation.Known || each[i].Known
		explanation.Remaining = min(explanation.Remaining, decision.Remaining)
		explanation.RetryAfter, explanation.ResetAfter = max(explanation.RetryAfter, decision.RetryAfter), max(explanation.ResetAfter, decision.ResetAfter)
		explanation.Blocked, explanation.Waiting = max(explanation.Blocked, each[i].Blocked), explanation.Waiting+each[i].Waiting
	}
	claim := binding.New(explanation.Allowed)
	for i := range each {
		claim.See(i, &each[i].Decision, each[i].Of)
	}
	explanation.Binding = claim.Index
	return explanation
}

// Explain explains the key by the live limiter. Explanation.Candidate explains the key by the
// candidate, if the key is tried. If the live limiter is itself a Trial, the candidates form a list,
// the outermost first.
func (t *Trial[K]) Explain(ctx context.Context, key K) (Explanation, error) {
	explanation, err := Explain(ctx, t.config.Live, key)
	if err != nil {
		return explanation, err
	}
	explanation.addCandidate(t.explainCandidate(ctx, key))
	return explanation, nil
}

func (t *Trial[K]) explainCandidate(ctx context.Context, key K) (explanation *Explanation) {
	var failed bool
	defer t.recovers(&failed)
	if !t.tries(key) {
		return nil
	}
	if c, err := Explain(ctx, t.config.Candidate, key); err == nil {
		explanation = &c
	}
	return explanation
}

// addCandidate puts a candidate, and the candidates in its own list, before those of the explanation. A nil
// candidate changes nothing.
func (x *Explanation) addCandidate(candidate *Explanation) {
	if candidate == nil {
		return
	}
	last := candidate
	for last.Candidate != nil {
		last = last.Candidate
	}
	last.Candidate, x.Candidate = x.Candidate, candidate
}

// String explains the key in plain sentences. Each of several limits has a line of its own.
func (x Explanation) String() string {
	var builder strings.Builder
	x.write(&builder, "")
	return builder.String()
}

func (x *Explanation) write(builder *strings.Builder, indent string) {
	builder.WriteString(strings.Join(x.sentences(), " "))
	for i := range x.Each {
		fmt.Fprintf(builder, "\n%s%d. ", indent, i+1)
		x.Each[i].write(builder, indent+"   ")
	}
	if x.Candidate != nil {
		fmt.Fprintf(builder, "\n%sCandidate: ", indent)
		x.Candidate.write(builder, indent+"   ")
	}
}

func (x *Explanation) sentences() (all []string) {
	say := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)+".") }
	if x.Name != "" {
		all = append(all, x.Name+":")
	}
	switch n := len(x.Each); n {
	case 0:
		say("%s", capital(policy.Describe(x.Limit)))
	case 1:
		say("1 limit")
	default:
		say("%d limits", n)
	}
	_, occupies := x.Limit.(policy.Occupier)
	switch {
	case x.Of == 0:
	case !occupies:
		say("%d of %d used", x.Used, x.Of)
	case x.OldestMax == 0:
		say("%d of %d in use", x.Used, x.Of)
	default:
		say("%d of %d in use, the oldest for %v to %v", x.Used, x.Of, brief(x.OldestMin.Round(time.Millisecond)), brief(x.OldestMax.Round(time.Millisecond)))
	}
	if len(x.Each) == 0 {
		if why := provenanceWords(x.Provenance); why != "" {
			say("%s", why)
		}
	}
	switch {
	case x.Allowed && x.Wait > 0:
		say("A call is admitted, to start in %v", brief(x.Wait))
	case x.Allowed:
		say("A call is admitted")
	case x.RetryAfter == policy.Never:
		say("Every call is refused")
	case x.RetryAfter == 0:
		say("A call is refused")
	default:
		say("A call is refused for %v", brief(x.RetryAfter))
	}
	if x.Shadow {
		say("The limit is in shadow: a call passes at once in any case")
	}
	if x.Binding >= 0 && x.Binding < len(x.Each) {
		say("Limit %d decides", x.Binding+1)
	}
	if x.Blocked > 0 {
		say("The key is blocked for %v", brief(x.Blocked))
	}
	switch n := len(x.Returns); n {
	case 0:
	case 1:
		say("In %v %s", brief(x.Returns[0].After), left(x.Returns[0].Remaining))
	default:
		first, last := x.Returns[0], x.Returns[n-1]
		say("In %v %s, and in %v %d", brief(first.After), left(first.Remaining), brief(last.After), last.Remaining)
	}
	here := ""
	if x.Source() > SourceUnrecorded {
		here = " on this server"
	}
	switch x.Waiting {
	case 0:
	case 1:
		say("1 call waits%s", here)
	default:
		say("%d calls wait%s", x.Waiting, here)
	}
	return all
}

// provenanceWords says why the figures do not describe the whole limit, or returns "".
func provenanceWords(provenance *Provenance) string {
	switch provenance.Source() {
	case SourceRedis, SourceLease:
		if cause := provenance.Err(); cause != nil && !errors.Is(cause, ErrBlocked) {
			return capital(strings.TrimPrefix(cause.Error(), "ral: "))
		}
		if !provenance.Exact() {
			return "How much is used is not known, as servers may hold units on lease"
		}
	case SourceShare:
		return "Without Redis, this server's share of the limit decides"
	case SourceUnrecorded:
		if cause := provenance.Err(); cause != nil {
			return "A call cannot be recorded: " + cause.Error()
		}
		return "A call cannot be recorded"
	case SourceOpen:
		return "Without Redis, calls pass as configured"
	case SourceClosed:
		return "Without Redis, calls are refused as configured"
	}
	return ""
}

func left(n int64) string {
	if n == 1 {
		return "1 is left"
	}
	return fmt.Sprintf("%d are left", n)
}

func capital(text string) string {
	if text == "" {
		return text
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

// brief formats a time, rounded up to four digits, or to whole seconds if that is finer. It omits zero seconds and
// minutes at the end: "1h30m" and not "1h30m0s".
func brief(duration time.Duration) string {
	unit := time.Duration(1)
	for unit < time.Second && duration/unit >= 10000 {
		unit *= 10
	}
	if duration <= policy.Never-unit {
		duration = (duration + unit - 1) / unit * unit
	}
	text := duration.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
