package main

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/ral-limiter/ral/bench"
)

// columns are the table's. Their widths are the same in all workloads, so that
// the eye finds its way down.
var columns = []struct {
	name  string
	width int
}{
	{"contender", 15}, {"ops/s", 6}, {"cpus", 4}, {"ns/op", 5}, {"spread", 6}, {"x floor", 7},
	{"allocs", 6}, {"B/op", 4}, {"p50", 7}, {"p99", 7}, {"p99.9", 7}, {"worst", 7}, {"refused", 7},
}

// writeTable writes the document for people.
func (d document) writeTable(w io.Writer) error {
	var b strings.Builder
	d.header(&b)
	for _, wl := range d.Workloads {
		section(&b, wl, d.Interrupted)
	}
	if len(d.Workloads) == 0 {
		b.WriteString("\nNothing was measured.\n")
	} else {
		d.footer(&b)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (d document) header(b *strings.Builder) {
	m := d.Machine
	fmt.Fprintf(b, "ralbench, commit %s, %s\n", m.Commit, d.Time.Format(time.RFC3339))
	gogc := ""
	if m.GOGC != "" {
		gogc = ", GOGC " + m.GOGC
	}
	fmt.Fprintf(b, "%s, %d cores, GOMAXPROCS %d, %s %s/%s%s\n", m.CPU, m.Cores, m.GOMAXPROCS, m.Go, m.OS, m.Arch, gogc)
	fmt.Fprintf(b, "medians of %d rounds, %v a turn, contenders interleaved", d.Settings.Rounds, d.Settings.Duration)
	if d.Settings.Scale != 1 {
		fmt.Fprintf(b, "; SCALED: workloads of many keys have %v times as many as they should", d.Settings.Scale)
	}
	b.WriteString("\n")
	if d.Interrupted {
		b.WriteString("INTERRUPTED: this is what was measured so far\n")
	}
}

func section(b *strings.Builder, w bench.WorkloadReport, interrupted bool) {
	fmt.Fprintf(b, "\n%s: %s\n", w.Name, w.About)
	fmt.Fprintf(b, "  a key may take %s; %s, %s", limit(w.Limit), plural(w.Keys, "key"), plural(w.Callers, "caller"))
	rounds := w.Rounds
	for _, r := range w.Results {
		rounds = min(rounds, len(r.Rounds))
	}
	if rounds < w.Rounds {
		why := "the budget of time allowed no more"
		if interrupted {
			why = "the run was interrupted or late"
		}
		fmt.Fprintf(b, "; ONLY %d OF %d ROUNDS: %s", rounds, w.Rounds, why)
	}
	b.WriteString("\n")

	if w.Timed {
		b.WriteString("  one pass of timed calls: what timing costs is in ops/s and ns/op too\n")
	}

	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.Style().Options.DrawBorder = false
	t.Style().Options.SeparateColumns = false
	t.Style().Format.Header = text.FormatDefault
	var heads table.Row
	var configs []table.ColumnConfig
	for i, c := range columns {
		heads = append(heads, c.name)
		align := text.AlignRight
		if i == 0 {
			align = text.AlignLeft
		}
		configs = append(configs, table.ColumnConfig{Number: i + 1, WidthMin: c.width, Align: align, AlignHeader: align})
	}
	t.AppendHeader(heads)
	t.SetColumnConfigs(configs)
	for _, r := range w.Results {
		t.AppendRow(resultRow(r))
		if r.Known != nil {
			t.AppendRow(append(table.Row{"  known keys", "", "", "", "", "", "", ""}, append(latencyCells(r.Known), "")...))
		}
	}
	b.WriteString(t.Render())
	b.WriteString("\n")
	for _, r := range w.Results {
		if r.Audit != nil {
			fmt.Fprintf(b, "  audit %-11s %s\n", r.Contender, auditLine(*r.Audit))
		}
	}
}

func resultRow(r bench.Result) table.Row {
	spread, ofFloor := "-", "-"
	if len(r.Rounds) > 1 {
		spread = fmt.Sprintf("±%.0f%%", 100*r.NsPerOp.Relative())
	}
	if r.OfFloor != nil {
		ofFloor = fmt.Sprintf("%.2f", r.OfFloor.Median)
	}
	row := table.Row{
		r.Contender, count(r.OpsPerSecond.Median), fmt.Sprintf("%.1f", r.CPUs.Median), digits(r.NsPerOp.Median), spread, ofFloor,
		fmt.Sprintf("%.2f", r.AllocsPerOp.Median), digits(r.BytesPerOp.Median),
	}
	return append(append(row, latencyCells(r.Latency)...), fmt.Sprintf("%.1f%%", 100*r.RefusedShare))
}

func latencyCells(l *bench.Latency) table.Row {
	if l == nil {
		return table.Row{"-", "-", "-", "-"}
	}
	return table.Row{duration(l.P50), duration(l.P99), duration(l.P999), duration(l.Worst)}
}

// auditLine says what was admitted, and the most that the limit allowed.
func auditLine(a bench.Audit) string {
	var b strings.Builder
	fmt.Fprintf(&b, "admitted %s of %s calls; at most %s allowed", thousands(a.Admitted), thousands(a.Calls), thousands(a.Allowed))
	if a.Limiters > 1 {
		fmt.Fprintf(&b, " (%d limiters)", a.Limiters)
	}
	switch {
	case a.Over > 0:
		fmt.Fprintf(&b, ": %s TOO MANY", thousands(a.Over))
	case !a.Binds:
		b.WriteString(": cannot bind, no key was asked beyond its limit")
	default:
		b.WriteString(": within the limit")
	}
	if own := a.Own; own != nil {
		for _, c := range []struct {
			n    int64
			what string
		}{
			{own.Overadmitted, "over-admitted"}, {own.Unavailable, "answered without the key's state"},
			{own.Evicted, "keys evicted"}, {own.Forgiven, "of them still owing"}, {own.Restarts, "restarts"},
		} {
			if c.n > 0 {
				fmt.Fprintf(&b, "; %s %s", thousands(c.n), c.what)
			}
		}
	}
	return b.String()
}

func (d document) footer(b *strings.Builder) {
	b.WriteString(`
ops/s by the clock, ns/op in processor time. spread: the ns/op farthest from the median.
x floor: median of the ratios within each round. p50 to worst: single calls, timed in
passes of their own; one clock read of about `)
	fmt.Fprintf(b, "%s is in them.\n", duration(clockRead()))
	b.WriteString("The worst calls include the pauses of the machine: compare them with the floor's.\n")
	fmt.Fprintf(b, "Took %v. ralbench -h explains the rest.\n", d.Took.Round(100*time.Millisecond))
}

// clockRead measures what reading the clock costs.
func clockRead() time.Duration {
	const n = 1000
	start := time.Now()
	for range n {
		_ = time.Since(start)
	}
	return time.Since(start) / n
}

// count writes a rate with three digits: 12.3M.
func count(x float64) string {
	switch {
	case x >= 999.5e6:
		return digits(x/1e9) + "G"
	case x >= 999.5e3:
		return digits(x/1e6) + "M"
	case x >= 999.5:
		return digits(x/1e3) + "k"
	}
	return digits(x)
}

// digits writes a number with three digits, or all before the point.
func digits(x float64) string {
	switch {
	case math.Abs(x) >= 99.95:
		return fmt.Sprintf("%.0f", x)
	case math.Abs(x) >= 9.995:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.2f", x)
}

// duration writes a latency with its unit.
func duration(d time.Duration) string {
	switch {
	case d < time.Microsecond:
		return fmt.Sprintf("%dns", d.Nanoseconds())
	case d < time.Millisecond:
		return digits(float64(d)/1e3) + "µs"
	case d < time.Second:
		return digits(float64(d)/1e6) + "ms"
	}
	return digits(d.Seconds()) + "s"
}

// thousands writes a whole number with commas.
func thousands(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// limit writes a limit with commas.
func limit(l bench.Limit) string {
	return fmt.Sprintf("bursts of %s, then %s per %s", thousands(l.Capacity), thousands(l.Count), short(l.Per))
}

// short writes a duration without the zeros at its end: 1h, not 1h0m0s.
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return thousands(int64(n)) + " " + noun + "s"
}
