package limits

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/ral-limiter/ral/internal/adapter/binding"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/policy"
)

// Explainer is implemented by limiters that can explain a key from what this process keeps:
// engine.Engine and engine.Tiered are. [Explain] explains a key of any limiter.
type Explainer[K comparable] interface {
	// Explain returns why a call for the key is admitted or refused now. It takes nothing,
	// opens no key, never waits for the limit, and is not counted.
	Explain(key K) Explanation
}

// RemoteExplainer is [Explainer] for limiters that may have to ask another process:
// fleet.Limiter, and Trial, whose limiters may be such.
type RemoteExplainer[K comparable] interface {
	// Explain is as that of Explainer. The context bounds how long it is asked. The error
	// is that of Limiter.Ask; that the other process is away is none.
	Explain(ctx context.Context, key K) (Explanation, error)
}

// Explanation is the state of a key at one moment, and why a call for it is admitted or
// refused. Its String says so in sentences, and leaves out what is not known. It is a copy:
// nothing in it changes. The zero Explanation is that of a limiter without a limit.
type Explanation struct {
	// Name is the limiter's, as Config.Name of an engine. It is empty if there is none.
	Name string
	// Limit is the limit that holds for the key. It is nil if Each has several.
	Limit policy.Policy
	// Known reports whether anything is recorded for the key, its use or a block. It is true
	// if that is not known, as by a look, or while what keeps the limit is away.
	Known bool

	// Allowed reports whether a call for one unit would be admitted now, Wait after which
	// delay it would start then, and RetryAfter when it would be admitted if not, behind the
	// calls that wait in this process, 0 if that is not known. Remaining and ResetAfter are those before it. Unless Exact, they
	// say nothing of the whole limit. Of several limits they are those of all together, as of
	// engine.Tiered.Take.
	policy.Decision
	*Provenance // how the limiter came to that

	// Used is the number of units that count against the key now, of Of: the most that
	// Remaining can be. Both are 0 if that is not known, as of a fleet while servers hold
	// leases or Redis is away, and if Each has several limits.
	Used, Of int64
	// Returns says when units come back, soonest first, if no call takes meanwhile: the
	// next one that does, the last one, and some between them, 16 at the most. Those of a
	// key that is blocked begin at the end of the block. It is empty if that is not known.
	Returns []Return
	// Blocked is for how much longer the key is blocked, whatever its limit says. Without
	// Redis it is what this server was told.
	Blocked time.Duration
	// Waiting is the number of calls that wait in the key's line: those of this process, if
	// several hold the key to the limit.
	Waiting int

	// Each explains the key under each of several limits, and Binding is the index of the
	// one that decides: of those that refuse a call for one unit now the one that refuses it
	// longest, and otherwise the one with the least share left. It is -1 if there is none.
	Each    []Explanation
	Binding int
	// Candidate explains the key under the limiter that is tried beside this one: see
	// Trial. It is nil if there is none, if the key is not tried, and if it failed. If
	// several are tried, each has the next one.
	Candidate *Explanation
}

// Return is a part of what a key has used that comes back.
type Return struct {
	After time.Duration // from the moment of the Explanation
	// Remaining is that of a look then. A nanosecond before, it is less. Under a Bursty or a
	// WarmingUp, a single call may take more units than Remaining.
	Remaining int64
}

// mostReturns bounds Explanation.Returns.
const mostReturns = 16

// Explain explains a key of any limiter. An [Explainer] or a [RemoteExplainer] is asked for
// what it knows, and so is a single.Limiter, by itself or in a [ForAnyKey]. Any other is asked by
// a look, which for a limiter that is [Remote] may leave the process, and Returns is empty. A
// look does not say when a call that is refused now will be admitted: RetryAfter is 0 then,
// unless the limiter says more. The error is that of the look, or of the RemoteExplainer.
func Explain[K comparable](ctx context.Context, l Limiter[K], key K) (Explanation, error) {
	switch e := l.(type) {
	case Explainer[K]:
		return e.Explain(key), nil
	case RemoteExplainer[K]:
		return e.Explain(ctx, key)
	case interface{ Explain() Explanation }: // without keys, as a single.Limiter
		return e.Explain(), nil
	case keyless[K]:
		return Explain(ctx, e.of, struct{}{})
	}
	a, err := l.Ask(ctx, key, 0)
	if err != nil {
		return Explanation{Binding: none}, err
	}
	x := Explanation{Limit: l.LimitFor(key), Binding: none, Known: true, Decision: a.Decision, Provenance: a.Provenance}
	if x.Limit != nil {
		x.Of = shape.AtOnce(x.Limit)
		x.Used = max(x.Of-x.Remaining, 0)
		// A look is allowed without a unit left. When one will be there it does not say.
		x.Allowed = x.Allowed && (x.Remaining > 0 || x.Limit.Delays())
	}
	return x, nil
}

// ExplainWord explains a key by its word under a limit at an instant, for a call of n units.
// blocked is for how much longer the key is blocked, and 0 if it is not. It is for limiters
// that keep words, and fills in Limit, the Decision, Used, Of, Returns and Blocked.
func ExplainWord(limit policy.Policy, word uint64, now policy.Instant, n int64, blocked time.Duration) Explanation {
	x := Explanation{Limit: limit, Binding: none, Of: shape.AtOnce(limit)}
	_, x.Decision = limit.Take(word, now, 0, 0)
	_, call := limit.Take(word, now, n, 0)
	x.Allowed, x.Wait, x.RetryAfter = call.Allowed, call.Wait, call.RetryAfter
	x.Used = x.Of - x.Remaining
	x.Block(blocked)
	x.Returns = returns(limit, word, now, x.Of, x.ResetAfter, blocked)
	return x
}

// Block makes the explanation that of a key which is blocked for so much longer: no call is
// admitted before. It is for limiters, and does nothing if blocked is 0.
func (x *Explanation) Block(blocked time.Duration) {
	if blocked <= 0 {
		return
	}
	x.Known, x.Blocked, x.Allowed, x.Remaining, x.Wait = true, blocked, false, 0, 0
	x.RetryAfter, x.ResetAfter = max(x.RetryAfter, blocked), max(x.ResetAfter, blocked)
}

// Line tells the explanation how many calls wait for the key, and how long a call that comes now would
// wait behind them. A call that is refused is refused for as long, except if turn is 0. It is for limiters.
func (x *Explanation) Line(waiting int, turn time.Duration) {
	x.Waiting = waiting
	if !x.Allowed {
		x.RetryAfter = max(x.RetryAfter, turn)
	}
}

// returns returns when units come back to a key that is blocked so long.
func returns(limit policy.Policy, word uint64, now policy.Instant, of int64, reset, blocked time.Duration) (all []Return) {
	last := min(int64(reset), math.MaxInt64-int64(now))
	at := func(after int64) int64 {
		if after < int64(blocked) {
			return 0
		}
		_, d := limit.Take(word, now+policy.Instant(after), 0, 0)
		return d.Remaining
	}
	remaining := at(0)
	missing, from := of-remaining, int64(0)
	for len(all) < mostReturns && remaining < of {
		// The next unit first, and then equal parts of what is missing.
		want := remaining + 1
		if len(all) > 0 {
			want = max(want, of-missing+int64(float64(missing)*float64(len(all))/(mostReturns-1)))
		}
		want = min(want, of)
		first, ok := shape.Earliest(at, want, from, last)
		if !ok {
			break // time stands still, or it never comes back
		}
		remaining, from = at(first), first
		all = append(all, Return{time.Duration(first), remaining})
	}
	return all
}

// Together returns the explanation of a key that several limits hold, one for each. A call on
// several limits is not delayed. Of a limit that would delay it, the explanation in Each says
// that the call is refused for as long.
func Together(each ...Explanation) Explanation {
	each = slices.Clone(each)
	x := Explanation{Each: each}
	x.Allowed = len(each) > 0
	for i := range each {
		d := &each[i].Decision
		if d.Allowed && d.Wait > 0 {
			d.Allowed, d.RetryAfter = false, d.Wait
		}
		d.Wait = 0
		if i == 0 {
			x.Limit, x.Remaining = nil, d.Remaining
			x.Decision.Limit = d.Limit
		}
		x.Decision.Limit = min(x.Decision.Limit, d.Limit)
		x.Allowed, x.Known = x.Allowed && d.Allowed, x.Known || each[i].Known
		x.Remaining = min(x.Remaining, d.Remaining)
		x.RetryAfter, x.ResetAfter = max(x.RetryAfter, d.RetryAfter), max(x.ResetAfter, d.ResetAfter)
		x.Blocked, x.Waiting = max(x.Blocked, each[i].Blocked), x.Waiting+each[i].Waiting
	}
	b := binding.New(x.Allowed)
	for i := range each {
		b.See(i, &each[i].Decision, each[i].Of)
	}
	x.Binding = b.Index
	return x
}

// Explain implements RemoteExplainer: by the live limiter, with the candidate's explanation
// as Candidate if the key is tried. It counts nothing. Of trials within each other, the Candidate
// of the outermost comes first, and each has the next one as its Candidate.
func (t *Trial[K]) Explain(ctx context.Context, key K) (Explanation, error) {
	x, err := Explain(ctx, t.config.Live, key)
	if err != nil {
		return x, err
	}
	x.addCandidate(t.explainCandidate(ctx, key))
	return x, nil
}

// explainCandidate returns nil if the key is not tried, or the candidate fails.
func (t *Trial[K]) explainCandidate(ctx context.Context, key K) (x *Explanation) {
	var failed bool
	defer t.recovers(&failed)
	if !t.tries(key) {
		return nil
	}
	if c, err := Explain(ctx, t.config.Candidate, key); err == nil {
		x = &c
	}
	return x
}

// addCandidate puts a candidate and its own ones before those that the explanation has. nil
// adds none.
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
	var b strings.Builder
	x.write(&b, "")
	return b.String()
}

// write writes the explanation, and those in it to lines of their own, further in.
func (x *Explanation) write(b *strings.Builder, indent string) {
	b.WriteString(strings.Join(x.sentences(), " "))
	for i := range x.Each {
		fmt.Fprintf(b, "\n%s%d. ", indent, i+1)
		x.Each[i].write(b, indent+"   ")
	}
	if x.Candidate != nil {
		fmt.Fprintf(b, "\n%sCandidate: ", indent)
		x.Candidate.write(b, indent+"   ")
	}
}

// sentences returns what a call meets now, and why.
func (x *Explanation) sentences() (all []string) {
	say := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)+".") }
	if x.Name != "" {
		all = append(all, x.Name+":")
	}
	if n := len(x.Each); n > 0 {
		say("%d limits", n)
	} else {
		say("%s", capital(policy.Describe(x.Limit)))
	}
	if x.Of > 0 {
		say("%d of %d used", x.Used, x.Of)
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

// provenanceWords says why the figures are not those of the whole limit, "" if they are or that is
// not known.
func provenanceWords(p *Provenance) string {
	switch p.Source() {
	case SourceRedis, SourceLease:
		if !p.Exact() {
			return "How much is used is not known, as servers may hold units on lease"
		}
	case SourceShare:
		return "Without Redis, this server's share of the limit decides"
	case SourceUnrecorded:
		if cause := p.Err(); cause != nil {
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

// left says how many units there are.
func left(n int64) string {
	if n == 1 {
		return "1 is left"
	}
	return fmt.Sprintf("%d are left", n)
}

// capital makes the first letter of a text a capital.
func capital(text string) string {
	if text == "" {
		return text
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

// brief writes a time with four digits, rounded up: "1h30m" and not "1h30m0s".
func brief(d time.Duration) string {
	unit := time.Duration(1)
	for unit < time.Second && d/unit >= 10000 {
		unit *= 10
	}
	if d <= policy.Never-unit {
		d = (d + unit - 1) / unit * unit
	}
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
