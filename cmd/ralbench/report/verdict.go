package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/fleetbench"
	"github.com/ral-limiter/ral/cmd/ralbench/format"
)

// Verdict is a line of a run's summary.
type Verdict struct {
	Title, Text string
	// Bad marks a broken promise, Good a confirmed promise.
	Bad, Good bool
}

// VerdictOf sums up a run: promises, goals, the fastest limiter of each workload, where Ral loses,
// and how far to trust the figures.
func VerdictOf(d Document) (lines []Verdict) {
	if len(d.Workloads) == 0 {
		return nil
	}
	lines = append(lines, promises(d))
	for _, of := range []func(Document) (Verdict, bool){goalVerdict, fastest, losses} {
		if v, ok := of(d); ok {
			lines = append(lines, v)
		}
	}
	return append(lines, trust(d))
}

// promises says which limiters exact by design kept their promises.
func promises(d Document) Verdict {
	v := Verdict{Title: "Promises"}
	s := Audits(d)
	if len(s.Broken) > 0 {
		v.Bad = true
		v.Text = fmt.Sprintf("BROKEN in %s, by limiters that are exact by their own design: %s.", format.Plural(len(s.Broken), "audit"), s.breaches())
		if !slices.ContainsFunc(s.Broken, func(r AuditRow) bool { return KindNamed(r.Contender) == KindRal }) {
			v.Text += " Ral kept its own in all of its audits."
		}
	} else {
		v.Good = s.Clean > 0
		v.Text = "no audit could find anything: no key was asked beyond its limit."
		if s.Clean > 0 {
			v.Text = fmt.Sprintf("each limiter that is exact by its own design kept its promise, in all %s that could find a breach.", format.Plural(s.Clean, "audit"))
		}
	}
	if len(s.Inexact) > 0 {
		var names []string
		for _, row := range s.Inexact {
			if !slices.Contains(names, row.Contender) {
				names = append(names, row.Contender)
			}
		}
		v.Text += fmt.Sprintf(" Inexact by design, and above their limits: %s.", format.And(names))
	}
	return v
}

// BrokenIn names limiters exact by design that broke their promise, and the workloads, or "".
func BrokenIn(d Document) string { return Audits(d).breaches() }

func (s AuditSummary) breaches() string {
	var broken []string
	for _, row := range s.Broken {
		broken = append(broken, fmt.Sprintf("%s in %s", row.Contender, row.Task))
	}
	return strings.Join(broken, ", ")
}

const mostMissed = 8

func goalVerdict(d Document) (Verdict, bool) {
	var missed []string
	var n int
	if d.Fleet != nil {
		n = len(d.Fleet.Goals)
		for _, g := range d.Fleet.Goals {
			if !g.Reached {
				missed = append(missed, fmt.Sprintf("%s, %s, %s: %s (goal %s)", g.Of, g.Where, g.What, fleetFigure(g, g.Value.Median), fleetGoal(g)))
			}
		}
	} else {
		all := Goals(d)
		n = len(all)
		for _, g := range all {
			if !g.Reached() {
				missed = append(missed, fmt.Sprintf("%s, %s (goal %s)", g.Workload, g.Text(), g.Show(g.Most)))
			}
		}
	}
	v := Verdict{Title: "Goals", Good: len(missed) == 0, Text: fmt.Sprintf("%d of %d reached.", n-len(missed), n)}
	if len(missed) > 0 {
		more := ""
		if n := len(missed) - mostMissed; n > 0 {
			missed, more = missed[:mostMissed], fmt.Sprintf("; and %d more, which -goals lists", n)
		}
		v.Text += " Missed: " + strings.Join(missed, "; ") + more + "."
	}
	return v, n > 0
}

// fastest names the comparable limiter with the most calls a second in each workload.
func fastest(d Document) (Verdict, bool) {
	var names []string
	won := make(map[string][]string)
	for _, w := range d.Workloads {
		peers := slices.DeleteFunc(slices.Clone(w.Results), func(r bench.Result) bool { return !r.Comparable() })
		if len(peers) < 2 || d.Fleet != nil {
			continue
		}
		best := speed.best(peers)
		if best == nil {
			continue
		}
		name := best.Contender
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
		won[name] = append(won[name], taskName(d, w.Name, w.CPU))
	}
	var parts []string
	for _, name := range names {
		parts = append(parts, fmt.Sprintf("%s in %s", name, format.And(won[name])))
	}
	return Verdict{Title: "Most calls a second", Text: strings.Join(parts, "; ") + "."}, len(parts) > 0
}

// clearly is the factor behind from which Ral is said to lose.
const clearly = 1.05

// losses lists where another comparable limiter is clearly better than Ral.
func losses(d Document) (Verdict, bool) {
	var parts []string
	compared := false
	for _, w := range d.Workloads {
		lostCalls, any := lostCalls(w)
		if compared = compared || any; len(lostCalls) > 0 {
			parts = append(parts, taskName(d, w.Name, w.CPU)+" ("+strings.Join(lostCalls, "; ")+")")
		}
		mine := w.Result(ral)
		if mine == nil || mine.Apart || d.Fleet != nil {
			continue
		}
		var lost []string
		for _, m := range []Figure{costs, speed, tails, worst, bytesPerKey} {
			other := m.best(peersIn(w))
			// One figure of the speed is enough. Worst calls show the machine, except in growth.
			if other == nil || m.Name == speed.Name && len(lost) > 0 || m.Name == worst.Name && w.Name != "growth" {
				continue
			}
			x, ok := m.Value(*mine)
			y, _ := m.Value(*other)
			compared = compared || ok
			if behind := m.Better < 0 && x > clearly*y || m.Better > 0 && y > clearly*x; ok && behind {
				lost = append(lost, fmt.Sprintf("%s %s, %s %s", m.Name, m.Format(x), other.Contender, m.Format(y)))
			}
		}
		if len(lost) > 0 {
			parts = append(parts, taskName(d, w.Name, w.CPU)+" ("+strings.Join(lost, "; ")+")")
		}
	}
	v := Verdict{Title: "Where Ral loses", Text: strings.Join(parts, ", ") + "."}
	if len(parts) == 0 {
		v.Text = "nowhere clearly, among the limiters of this run."
	}
	return v, compared
}

// lostCalls lists where a peer is clearly better than Ral's call of the same kind. compared reports
// any such pair.
func lostCalls(w bench.WorkloadReport) (lost []string, compared bool) {
	for _, r := range w.Results {
		mine := w.Result(r.Like)
		if r.Like == "" || mine == nil || !r.KeptPromise() {
			continue
		}
		compared = true
		if x, y := mine.NsPerOp.Median, r.NsPerOp.Median; x > clearly*y {
			lost = append(lost, fmt.Sprintf("%s ns/op %s, %s %s", mine.Contender, costs.Format(x), r.Contender, costs.Format(y)))
		}
	}
	return lost, compared
}

func trust(d Document) Verdict {
	passes, disturbed, rounds := 0, 0, 0
	for _, w := range d.Workloads {
		for _, r := range w.Results {
			passes += len(r.Rounds)
			disturbed += r.Disturbed
			rounds = max(rounds, len(r.Rounds))
		}
	}
	v := Verdict{Title: "Trust"}
	switch {
	case !d.Watched:
		v.Text = "this system does not tell of other load."
	case disturbed == 0:
		v.Text = "no other load disturbed any pass."
	default:
		v.Text = fmt.Sprintf("other load DISTURBED %d of %s; differences of the size of the spread mean nothing.", disturbed, format.Plural(passes, "pass"))
	}
	if rounds == 1 {
		v.Text += " There is one round only, and so no spread."
	}
	v.Text += cuts(d)
	if d.Settings.Scale != 1 {
		v.Text += fmt.Sprintf(" SCALED: workloads of many keys had %v times as many as they should.", d.Settings.Scale)
	}
	return v
}

// cuts tells the rounds and contenders cut by the budget.
func cuts(d Document) (text string) {
	var short []string
	for _, w := range d.Workloads {
		if Rounds(w) < w.Rounds {
			short = append(short, taskName(d, w.Name, w.CPU))
		}
	}
	if len(short) > 0 && d.Settings.Budget > 0 && !d.Interrupted {
		text = fmt.Sprintf(" The budget of %v CUT ROUNDS in %s.", d.Settings.Budget, format.And(short))
	}
	var whole []string
	for _, l := range d.LeftOut {
		task := taskName(d, l.Workload, l.CPU)
		some := slices.ContainsFunc(d.Workloads, func(w bench.WorkloadReport) bool { return w.Name == l.Workload && w.CPU == l.CPU })
		if !some {
			whole = append(whole, task)
			continue
		}
		text += fmt.Sprintf(" NO TIME was left in %s for %s.", task, format.And(l.Contenders))
	}
	if len(whole) > 0 {
		text += fmt.Sprintf(" NO TIME was left for %s.", format.And(whole))
	}
	return text
}

// taskName returns a workload's name, with GOMAXPROCS if there are several values.
func taskName(d Document, workload string, cpu int) string {
	if len(d.Settings.CPUs) > 1 {
		return format.Task(workload, cpu)
	}
	return workload
}

// KindNamed is KindOf for a limiter's name.
func KindNamed(contender string) string {
	if contender == ral || strings.HasPrefix(contender, ral+" ") {
		return KindRal
	}
	return KindPeer
}

func fleetFigure(g fleetbench.Goal, x float64) string {
	if g.Percent {
		return format.Percent(x)
	}
	return format.Digits(x)
}
