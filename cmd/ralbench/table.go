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

// column is a column of a table. Its width is the same in all workloads, so that
// the eye finds its way down.
type column struct {
	name  string
	width int
	figure
}

// named is the width of the column of names, signs included.
const named = 18

// columns are those of each workload's table, after the contender's.
var columns = []column{
	{"ops/s", 7, figure{better: +1,
		show:  func(r bench.Result) string { return count(r.OpsPerSecond.Median) },
		value: func(r bench.Result) (float64, bool) { return r.OpsPerSecond.Median, true }}},
	{"cpus", 5, figure{
		show: func(r bench.Result) string { return fmt.Sprintf("%.1f", r.CPUs.Median) }}},
	{"ns/op", 6, figure{better: -1,
		show:  func(r bench.Result) string { return digits(r.NsPerOp.Median) },
		value: func(r bench.Result) (float64, bool) { return r.NsPerOp.Median, true }}},
	{"spread", 7, figure{show: spread}},
	{"x floor", 8, figure{better: -1, show: ofFloor,
		value: func(r bench.Result) (float64, bool) {
			if r.OfFloor == nil {
				return 0, false
			}
			return r.OfFloor.Median, true
		}}},
	{"allocs", 7, figure{better: -1,
		show:  func(r bench.Result) string { return fmt.Sprintf("%.2f", r.AllocsPerOp.Median) },
		value: func(r bench.Result) (float64, bool) { return r.AllocsPerOp.Median, true }}},
	{"B/op", 5, figure{better: -1,
		show:  func(r bench.Result) string { return digits(r.BytesPerOp.Median) },
		value: func(r bench.Result) (float64, bool) { return r.BytesPerOp.Median, true }}},
	{"p50", 8, latency(func(l bench.Latency) time.Duration { return l.P50 })},
	{"p99", 8, latency(func(l bench.Latency) time.Duration { return l.P99 })},
	{"p99.9", 8, latency(func(l bench.Latency) time.Duration { return l.P999 })},
	{"worst", 8, latency(func(l bench.Latency) time.Duration { return l.Worst })},
	{"refused", 8, figure{
		show: func(r bench.Result) string { return fmt.Sprintf("%.1f%%", 100*r.RefusedShare) }}},
}

// memoryColumns are those of a further table where memory was measured.
var memoryColumns = []column{
	{"B/key", 7, figure{better: -1,
		show:  ofMemory(func(m bench.Memory) string { return digits(m.BytesPerKey) }),
		value: func(r bench.Result) (float64, bool) { return r.Memory.BytesPerKey, true }}},
	{"heap", 8, figure{show: ofMemory(func(m bench.Memory) string { return count(float64(m.FullHeap)) + "B" })}},
	{"full GC", 8, figure{better: -1,
		show:  ofMemory(func(m bench.Memory) string { return duration(m.GC) }),
		value: func(r bench.Result) (float64, bool) { return float64(r.Memory.GC), true }}},
	{"before", 8, figure{show: ofMemory(func(m bench.Memory) string { return duration(m.GCBefore) })}},
	{"idle heap", 10, figure{better: -1,
		show: ofMemory(func(m bench.Memory) string {
			if m.Idle == 0 {
				return "keeps all"
			}
			return fmt.Sprintf("%.1f%%", 100*m.IdleShare())
		}),
		value: func(r bench.Result) (float64, bool) { return r.Memory.IdleShare(), true }}},
}

func spread(r bench.Result) string {
	if len(r.Rounds) < 2 {
		return "-"
	}
	return fmt.Sprintf("±%.0f%%", 100*r.NsPerOp.Relative())
}

func ofFloor(r bench.Result) string {
	if r.OfFloor == nil {
		return "-"
	}
	return fmt.Sprintf("%.2f", r.OfFloor.Median)
}

// latency is the figure of a latency, where there are any.
func latency(of func(bench.Latency) time.Duration) figure {
	return figure{better: -1,
		show: func(r bench.Result) string {
			if r.Latency == nil {
				return "-"
			}
			return duration(of(*r.Latency))
		},
		value: func(r bench.Result) (float64, bool) {
			if r.Latency == nil {
				return 0, false
			}
			return float64(of(*r.Latency)), true
		},
	}
}

func ofMemory(show func(bench.Memory) string) func(bench.Result) string {
	return func(r bench.Result) string { return show(*r.Memory) }
}

// writeTable writes the document for people.
func (d document) writeTable(w io.Writer) error {
	var b strings.Builder
	d.header(&b)
	for _, wl := range d.Workloads {
		d.section(&b, wl)
	}
	if d.Fleet != nil {
		d.fleetSection(&b)
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
	fmt.Fprintf(b, "%s, %d cores, GOMAXPROCS %s, %s %s/%s%s\n", m.CPU, m.Cores, d.cpus(), m.Go, m.OS, m.Arch, gogc)
	fmt.Fprintf(b, "medians of %d rounds, %v a turn, contenders interleaved", d.Settings.Rounds, d.Settings.Duration)
	if d.Settings.Scale != 1 {
		fmt.Fprintf(b, "; SCALED: workloads of many keys have %v times as many as they should", d.Settings.Scale)
	}
	b.WriteString("\n")
	if d.Interrupted {
		b.WriteString("INTERRUPTED: this is what was measured so far\n")
	}
}

// cpus lists the values of GOMAXPROCS.
func (d document) cpus() string {
	var list []string
	for _, cpu := range d.Settings.CPUs {
		list = append(list, fmt.Sprint(cpu))
	}
	return strings.Join(list, ", ")
}

func (d document) section(b *strings.Builder, w bench.WorkloadReport) {
	name := w.Name
	if len(d.Settings.CPUs) > 1 {
		name = fmt.Sprintf("%s, GOMAXPROCS %d", name, w.CPU)
	}
	fmt.Fprintf(b, "\n%s: %s\n", name, w.About)
	fmt.Fprintf(b, "  a key may take %s; %s, %s", limit(w.Limit), plural(w.Keys, "key"), plural(w.Callers, "caller"))
	rounds := w.Rounds
	for _, r := range w.Results {
		rounds = min(rounds, len(r.Rounds))
	}
	if rounds < w.Rounds {
		why := "the budget of time allowed no more"
		if d.Interrupted {
			why = "the run was interrupted or late"
		}
		fmt.Fprintf(b, "; ONLY %d OF %d ROUNDS: %s", rounds, w.Rounds, why)
	}
	b.WriteString("\n")
	b.WriteString(disturbance(w))
	if w.Timed {
		b.WriteString("  one pass of timed calls: what timing costs is in ops/s and ns/op too\n")
	}

	known := make(map[int]table.Row)
	for i, r := range w.Results {
		if r.Known != nil {
			known[i] = knownRow(r)
		}
	}
	render(b, columns, w.Results, known)
	var measured []bench.Result
	for _, r := range w.Results {
		if r.Memory != nil {
			measured = append(measured, r)
		}
	}
	if len(measured) > 0 {
		fmt.Fprintf(b, "  what %s keys hold beside their own %s bytes, and what is left after %s of idling:\n",
			thousands(int64(measured[0].Memory.Keys)), thousands(measured[0].Memory.KeyBytes), idling(measured))
		render(b, memoryColumns, measured, nil)
	}
	audits(b, w.Results)
}

// audits says what came of the audits: in a line for each, or in one for all that
// cannot find anything.
func audits(b *strings.Builder, results []bench.Result) {
	var silent []string
	for _, r := range results {
		if r.Audit != nil && !speaks(*r.Audit) {
			silent = append(silent, r.Contender)
		}
	}
	for _, r := range results {
		if r.Audit != nil && (speaks(*r.Audit) || len(silent) == 1) {
			fmt.Fprintf(b, "  audit %-15s %s\n", r.Contender, auditLine(*r.Audit))
		}
	}
	if len(silent) > 1 {
		fmt.Fprintf(b, "  audit cannot bind, no key was asked beyond its limit, and all calls passed: %s\n", strings.Join(silent, ", "))
	}
}

// speaks tells whether an audit has more to say than that nothing can be said.
func speaks(a bench.Audit) bool {
	return a.Binds || a.Over > 0 || a.Admitted != a.Calls || a.Own != nil && *a.Own != (bench.Counts{})
}

// disturbance says what other load did to a workload, if it did anything.
func disturbance(w bench.WorkloadReport) string {
	passes, disturbed, repeated := 0, 0, 0
	for _, r := range w.Results {
		passes += len(r.Rounds)
		disturbed += r.Disturbed
		repeated += r.Repeated
	}
	switch {
	case disturbed > 0:
		return fmt.Sprintf("  other load DISTURBED %d of %d passes; %d were done again\n", disturbed, passes, repeated)
	case repeated > 0:
		return fmt.Sprintf("  other load disturbed passes, which were done again: %d\n", repeated)
	}
	return ""
}

// idling returns the idle time of those limiters that have one.
func idling(results []bench.Result) string {
	for _, r := range results {
		if r.Memory.Idle > 0 {
			return short(r.Memory.Idle)
		}
	}
	return "0s"
}

// newTable returns a table as all look on the terminal.
func newTable() table.Writer {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.Style().Options.DrawBorder = false
	t.Style().Options.SeparateColumns = false
	t.Style().Format.Header = text.FormatDefault
	return t
}

// render writes a table of results, the floor apart, with further rows after some
// of them.
func render(b *strings.Builder, columns []column, results []bench.Result, further map[int]table.Row) {
	t := newTable()
	heads := table.Row{"contender"}
	configs := []table.ColumnConfig{{Number: 1, WidthMin: named, Align: text.AlignLeft, AlignHeader: text.AlignLeft}}
	var figures []figure
	for i, c := range columns {
		heads = append(heads, c.name+noMark)
		configs = append(configs, table.ColumnConfig{Number: i + 2, WidthMin: c.width, Align: text.AlignRight, AlignHeader: text.AlignRight})
		figures = append(figures, c.figure)
	}
	t.AppendHeader(heads)
	t.SetColumnConfigs(configs)
	for i, row := range cells(figures, results) {
		t.AppendRow(append(table.Row{label(results[i])}, row...))
		if row := further[i]; row != nil {
			t.AppendRow(row)
		}
		if results[i].IsFloor {
			t.AppendSeparator()
		}
	}
	b.WriteString(t.Render())
	b.WriteString("\n")
}

// knownRow has the latencies of known keys where those of the others are.
func knownRow(r bench.Result) table.Row {
	of := bench.Result{Latency: r.Known}
	row := table.Row{"  known keys"}
	for _, c := range columns {
		switch c.name {
		case "p50", "p99", "p99.9", "worst":
			row = append(row, c.show(of)+noMark)
		default:
			row = append(row, "")
		}
	}
	return row
}

// muchMissed is the share of what was possible below which a limiter is said to have
// missed some of it: what is above may be due to when the calls came.
const muchMissed = 0.95

// auditLine says what was admitted, the most that the limit allowed, and what was
// possible.
func auditLine(a bench.Audit) string {
	var b strings.Builder
	fmt.Fprintf(&b, "admitted %s of %s calls; at most %s allowed, %s possible",
		thousands(a.Admitted), thousands(a.Calls), thousands(a.Allowed), thousands(a.Possible))
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
	if share := a.OfPossible(); share < muchMissed {
		fmt.Fprintf(&b, ", but ONLY %.1f%% of what was possible", 100*share)
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
	fmt.Fprintf(b, `%s best exact limiter of its column; %s not exact by its own design; %s let more pass than its limit:
neither of these is ever the best. The floor is no limiter.
`, mark, inexactSign, overSign)
	if d.Fleet != nil {
		b.WriteString(fleetFooter)
	}
	for _, note := range d.notes() {
		fmt.Fprintf(b, "%s\n", note)
	}
	if !d.Watched {
		b.WriteString("This system does not tell of other load: disturbed passes are not marked.\n")
	}
	b.WriteString("The worst calls include the pauses of the machine: compare them with the floor's.\n")
	fmt.Fprintf(b, "Took %v. ralbench -h explains the rest.\n", d.Took.Round(100*time.Millisecond))
}

// notes returns what has to be known of the contenders, each once.
func (d document) notes() (notes []string) {
	seen := map[string]bool{}
	for _, w := range d.Workloads {
		for _, r := range w.Results {
			if r.Note != "" && !seen[r.Contender] {
				seen[r.Contender] = true
				notes = append(notes, fmt.Sprintf("  %s: %s", r.Contender, r.Note))
			}
		}
	}
	return notes
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
