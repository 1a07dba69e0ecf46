package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/mattn/go-runewidth"

	"github.com/ral-limiter/ral/cmd/ral/internal/report"
	"github.com/ral-limiter/ral/internal/adapter/pagejson"
)

// text writes a view as tables, in at most so many columns and lines. 0 is any number.
func (v view) text(width, height int) string {
	var builder strings.Builder
	notes := ""
	if v.overview.Hashed {
		notes = ", keys shown as hashes"
	}
	all := len(v.overview.Limits)
	verdict, causes := v.verdict(width)
	if height > 0 {
		if most := max(height/4, 1); len(causes) > most {
			causes = append(causes[:most-1], "(More lines do not fit.)")
		}
		v = v.fit(height - len(causes))
	}
	if shown := len(v.overview.Limits); shown < all {
		notes += fmt.Sprintf(", %d shown", shown)
	}
	fmt.Fprintf(&builder, "%s %s, %s%s\n", verdict, v.overview.Now.Format(time.TimeOnly), many(all, "limit"), notes)
	for _, line := range causes {
		builder.WriteString(line + "\n")
	}
	builder.WriteString("\n")
	limits := report.Table{{"", "LIMIT", "POLICY", ">ADMITTED/S", ">REFUSED/S", ">KEYS", "HEALTH"}}
	for i := range v.overview.Limits {
		limits = append(limits, v.limit(&v.overview.Limits[i]))
	}
	limits.Without(width, "POLICY", ">KEYS", ">ADMITTED/S", ">REFUSED/S").Write(&builder, width)
	if v.owed.Limit != "" {
		title, owed := "owes most", report.Table{{"KEY", ">USED", ">REMAINING", ">NEXT UNIT IN", ">OWES NOTHING IN", "BLOCKED"}}
		if v.inFlight() {
			title, owed = "has most in use", report.Table{{"KEY", ">IN USE", ">REMAINING", ">NEXT UNIT WITHIN", ">ALL FREE WITHIN", "BLOCKED"}}
		}
		fmt.Fprintf(&builder, "\n%s: %s, of %s%s\n", report.Printable(v.chosen), title, many(v.owed.Total, "key"), age(&v.owed))
		for i := range v.owed.Rows {
			row := &v.owed.Rows[i]
			owed.Add(named(row), fmt.Sprintf("%.0f%%", 100*row.Share), row.Remaining, returns(row), seconds(row.Full), blocked(row))
		}
		owed.Write(&builder, width)
		fmt.Fprintf(&builder, "\n%s: is refused most, of %s in %s; any other key %d times at most\n",
			report.Printable(v.chosen), many(v.refused.Total, "refusal"), seconds(v.refused.For), v.refused.OthersMost)
		refused := report.Table{{"KEY", ">REFUSED", ">AT LEAST", ">AT MOST", "BLOCKED"}}
		for i := range v.refused.Rows {
			row := &v.refused.Rows[i]
			refused.Add(named(row), row.Refused, row.Least, row.Most, blocked(row))
		}
		refused.Write(&builder, width)
	}
	if width <= 0 {
		return builder.String()
	}
	lines := strings.Split(builder.String(), "\n")
	for i := range lines {
		lines[i] = runewidth.Truncate(lines[i], width, "…")
	}
	return strings.Join(lines, "\n")
}

// fit returns the view with the limits and rows that fit in so many lines. Each list gets half of
// the lines, or more if the other is shorter. Limits near the chosen limit stay.
func (v view) fit(height int) view {
	const (
		head      = 3 // lines before the limits
		listHeads = 6 // lines before the rows of both lists
		fewest    = 3 // rows that a list has before the limits get more lines
	)
	limits, owed, refused := v.overview.Limits, v.owed.Rows, v.refused.Rows
	room := height - head
	if v.owed.Limit != "" {
		room -= listHeads
	}
	n := max(min(len(limits), room-min(len(owed), fewest)-min(len(refused), fewest)), min(len(limits), 1))
	at := slices.IndexFunc(limits, func(summary pagejson.LimitSummary) bool { return summary.Name == v.chosen })
	first := min(max(at-n/2, 0), len(limits)-n)
	v.overview.Limits = limits[first : first+n]
	room = max(room-n, 0)
	n = min(len(owed), max((room+1)/2, room-len(refused)))
	v.owed.Rows, v.refused.Rows = owed[:n], refused[:min(len(refused), room-n)]
	return v
}

// inFlight reports whether the chosen limit is of calls at once. Its units are free at a time at the latest,
// and sooner by a release.
func (v view) inFlight() bool {
	return slices.ContainsFunc(v.overview.Limits, func(summary pagejson.LimitSummary) bool {
		return summary.Name == v.chosen && strings.HasPrefix(summary.Policy, "in flight ")
	})
}

// verdict names the limit that is wrong, or says how many are, or that none is. causes are the lines
// that say why, none of them wider than width, or 0.
func (v view) verdict(width int) (verdict string, causes []string) {
	var wrong []string
	add := func(name, why string) {
		wrong = append(wrong, report.Printable(name))
		causes = append(causes, strings.Split(ansi.Wrap(report.Printable(name+": "+why), width, ""), "\n")...)
	}
	if v.overview.Health != "" {
		add("configuration", v.overview.Health)
	}
	for i := range v.overview.Limits {
		summary := &v.overview.Limits[i]
		if why := health(summary); why != "" {
			add(summary.Name, why)
		}
	}
	switch len(wrong) {
	case 0:
		return "Nothing is wrong.", nil
	case 1:
		return "Something is wrong with " + wrong[0] + ".", causes
	}
	return fmt.Sprintf("%d things are wrong.", len(wrong)), causes
}

func (v view) limit(summary *pagejson.LimitSummary) []string {
	row := []string{" ", report.Printable(summary.Name), report.Printable(summary.Policy), "-", "-", "-", "ok"}
	if summary.Name == v.chosen {
		row[0] = ">"
	}
	if n := len(summary.Points); n > 0 && summary.Figures["Admitted"] != nil {
		point := summary.Points[n-1]
		row[3], row[4] = rate(point.Admitted), rate(point.Refused)
	}
	if keys, ok := summary.Figures["Keys"].(float64); ok {
		row[5] = fmt.Sprint(uint64(keys))
	}
	if health(summary) != "" {
		row[6] = "wrong"
	}
	return row
}

const maxName = 48

// named returns a row's key, or the beginning of its ID.
func named(row *pagejson.Row) string {
	if row.Key == "" {
		return "#" + report.Printable(row.ID[:min(len(row.ID), 12)])
	}
	return runewidth.Truncate(report.Printable(row.Key), maxName, "…")
}

func many[N int | int64 | uint64](n N, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func rate(perSecond float64) string {
	if perSecond < 10 && perSecond != float64(int(perSecond)) {
		return fmt.Sprintf("%.1f", perSecond)
	}
	return fmt.Sprintf("%.0f", perSecond)
}

func seconds(value float64) string {
	switch {
	case value <= 0:
		return "0s"
	case value < 1:
		return fmt.Sprintf("%.0fms", max(1, 1000*value))
	case value < 120:
		return fmt.Sprintf("%.0fs", value)
	case value < 2*3600:
		return fmt.Sprintf("%.0fm", value/60)
	case value < 2*86400:
		return fmt.Sprintf("%.0fh", value/3600)
	}
	return fmt.Sprintf("%.0fd", value/86400)
}

func blocked(row *pagejson.Row) string {
	if row.Blocked <= 0 {
		return ""
	}
	return "for " + seconds(row.Blocked)
}

// age tells the age of a list of a second or more, or that it is pending.
func age(list *pagejson.List) string {
	switch {
	case list.Pending:
		return ": the keys are being gone through"
	case list.Age >= 1:
		return ", " + seconds(list.Age) + " ago"
	}
	return ""
}

// returns tells after which time the next unit of a key returns.
func returns(row *pagejson.Row) string {
	if row.Returns < 0 {
		return "never"
	}
	return seconds(row.Returns)
}
