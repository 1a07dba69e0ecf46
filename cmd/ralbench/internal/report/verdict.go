package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/format"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/servebench"
)

// Verdict is a line of a run's summary.
type Verdict struct {
	Title, Text string
	// Bad marks a broken promise, Good a confirmed promise.
	Bad, Good bool
}

// VerdictOf sums up a run: Ral beside the best peers, how far to trust that, promises, and
// how many goals were reached.
func VerdictOf(d Document) (lines []Verdict) {
	if len(d.Workloads) == 0 {
		return nil
	}
	return append(FirstScreen(d), Outcome(d)...)
}

// Outcome says which promises were kept, and how many goals were reached.
func Outcome(d Document) (lines []Verdict) {
	lines = promises(d)
	if n, missed, unjudged := measuredGoals(d); n+unjudged > 0 {
		lines = append(lines, Verdict{Title: "Goals", Good: n > 0 && len(missed)+unjudged == 0 && !d.Interrupted, Text: GoalSummary(d)})
	}
	return lines
}

// FirstScreen says how Ral compares with the best peers, and how far to trust that.
func FirstScreen(d Document) (lines []Verdict) {
	if _, sentence := Beside(d); sentence != "" {
		lines = append(lines, Verdict{Title: ral, Text: sentence})
	}
	return append(lines, trust(d))
}

// Shortfalls lists missed goals, and where another limiter is clearly better than Ral.
func Shortfalls(d Document) (lines []Verdict) {
	_, missed, _ := measuredGoals(d)
	if n := len(missed) - maxMissed; n > 0 {
		missed = append(missed[:maxMissed], fmt.Sprintf("and %d more, which -goals lists", n))
	}
	for i, texts := range [][]string{missed, losses(d)} {
		if len(texts) > 0 {
			lines = append(lines, Verdict{Title: []string{"Missed goals", "Where Ral loses"}[i], Text: strings.Join(texts, "; ") + "."})
		}
	}
	return lines
}

const maxMissed = 8

// promises says which limiters exact by design kept their promises, if any was audited.
func promises(d Document) []Verdict {
	s := Audits(d)
	if s.Clean+s.CannotBind+len(s.Broken)+len(s.Peers)+len(s.Inexact) == 0 {
		return nil
	}
	v := Verdict{Title: "Promises", Bad: len(s.Broken) > 0, Good: len(s.Broken) == 0 && s.Clean > 0}
	switch {
	case v.Bad:
		v.Text = "BROKEN by Ral: " + Breaches(s.Broken) + "."
	case len(s.Peers) > 0:
		v.Text = "Ral kept its own in all of its audits."
	case v.Good:
		v.Text = fmt.Sprintf("each limiter that is exact by its own design kept its promise, in all %s that could find a breach.", format.Plural(s.Clean, "audit"))
	default:
		v.Text = "no audit could find anything: no key was asked beyond its limit."
	}
	if len(s.Peers) > 0 {
		v.Text += " Exact by design, " + Breaches(s.Peers) + "."
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
	return []Verdict{v}
}

// clearly is the factor behind from which Ral is said to lose.
const clearly = 1.05

// losses lists where another comparable limiter, or a peer's call of the same kind, is clearly
// better than Ral.
func losses(d Document) (parts []string) {
	for _, w := range d.Workloads {
		var lost []string
		compare := func(m Column, mine, other *bench.Result) {
			if mine == nil || other == nil {
				return
			}
			times, why, ok := m.judged(*mine, other)
			if m.Better > 0 {
				times = bench.Spread{Median: 1 / times.Median, Min: 1 / times.Max, Max: 1 / times.Min}
			}
			if ok && why == "" && times.Median > clearly {
				name := strings.TrimPrefix(mine.Name+" ", ral+" ")
				x, _, _ := m.judged(*mine, nil)
				y, _, _ := m.judged(*other, nil)
				lost = append(lost, fmt.Sprintf("%s%s %s, %s %s, %s times", name, m.Name, m.Format(x.Median), other.Name, m.Format(y.Median), format.Range(times)))
			}
		}
		for i, r := range w.Results {
			if r.Like != "" && r.KeptPromise() {
				compare(costs, w.Result(r.Like), &w.Results[i])
			}
		}
		if mine := w.Result(ral); mine != nil && !mine.Apart {
			for _, m := range []Column{costs, speed, tails, worst, bytesPerKey} {
				// One figure of the speed is enough. Worst calls show the machine, except in growth.
				if m.Name == speed.Name && len(lost) > 0 || m.Name == worst.Name && w.Name != "growth" {
					continue
				}
				compare(m, mine, m.best(peersIn(w)))
			}
		}
		if len(lost) > 0 {
			parts = append(parts, taskName(d, w.Name, w.CPU)+" ("+strings.Join(lost, "; ")+")")
		}
	}
	return parts
}

func trust(d Document) Verdict {
	passes, disturbed, rounds := 0, 0, 0
	for _, w := range d.Workloads {
		for _, r := range w.Results {
			rounds = max(rounds, len(r.Rounds))
			if !r.Outside {
				passes += len(r.Rounds)
				disturbed += r.Disturbed
			}
		}
	}
	v := Verdict{Title: "Trust"}
	load := fmt.Sprintf("other load disturbed %d of %s", disturbed, format.Plural(passes, "pass"))
	switch {
	case !d.Watched || passes == 0:
		v.Text = "other load was not watched: believe only what repeats."
	case disturbed > passes/10:
		v.Text = "the machine was TOO BUSY for these figures: " + load + ". Close other programs and run again."
	default:
		v.Text = "the machine was quiet enough for these figures: " + load + "."
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

// RoundsText says over how many rounds the medians are, and if some have fewer.
func RoundsText(d Document) string {
	if len(cutShort(d)) > 0 {
		return "medians of up to " + format.Plural(d.Settings.Rounds, "round")
	}
	return format.Medians(d.Settings.Rounds)
}

// cutShort names the workloads with fewer rounds than planned.
func cutShort(d Document) (short []string) {
	for _, w := range d.Workloads {
		if Rounds(w) < w.Rounds {
			short = append(short, taskName(d, w.Name, w.CPU))
		}
	}
	return short
}

// cuts tells the rounds and contenders cut by the budget.
func cuts(d Document) (text string) {
	if short := cutShort(d); len(short) > 0 && d.Settings.Budget > 0 && !d.Interrupted {
		where := format.And(short)
		if len(short) > 3 {
			where = fmt.Sprintf("%d of %s", len(short), format.Plural(len(d.Workloads), "workload"))
		}
		text = fmt.Sprintf(" The budget of %v CUT ROUNDS in %s: -budget 0, or -full, measures them all.", d.Settings.Budget, where)
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
	if contender == ral || contender == servebench.Rald || strings.HasPrefix(contender, ral+" ") {
		return KindRal
	}
	return KindPeer
}
