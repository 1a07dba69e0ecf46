package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/mattn/go-runewidth"

	"github.com/ral-limiter/ral/inspect"
)

// text writes a view as tables. Lines are cut at that width, unless it is 0.
func (v view) text(width int) string {
	var b strings.Builder
	hashed := ""
	if v.overview.Hashed {
		hashed = ", keys shown as hashes"
	}
	fmt.Fprintf(&b, "%s, %s%s\n\n", v.overview.Now.Format(time.DateTime), many(len(v.overview.Limits), "limit"), hashed)
	limits := table{{"", "LIMIT", "POLICY", ">ADMITTED/S", ">REFUSED/S", ">KEYS", "HEALTH"}}
	for i := range v.overview.Limits {
		limits = append(limits, v.limit(&v.overview.Limits[i]))
	}
	limits.write(&b)
	if v.owed.Limit != "" {
		fmt.Fprintf(&b, "\n%s: owes most, of %s%s\n", printable(v.chosen), many(int(v.owed.Total), "key"), age(&v.owed))
		owed := table{{"KEY", ">USED", ">REMAINING", ">NEXT UNIT IN", ">OWES NOTHING IN", "BLOCKED"}}
		for i := range v.owed.Rows {
			r := &v.owed.Rows[i]
			owed = append(owed, []string{named(r), percent(r.Share), strconv.FormatInt(r.Remaining, 10), returns(r), seconds(r.Full), blocked(r)})
		}
		owed.write(&b)
		fmt.Fprintf(&b, "\n%s: is refused most, of %s in %s; others %d at most\n",
			printable(v.chosen), many(int(v.refused.Total), "refusal"), seconds(v.refused.For), v.refused.OthersMost)
		refused := table{{"KEY", ">REFUSED", ">AT LEAST", ">AT MOST", "BLOCKED"}}
		for i := range v.refused.Rows {
			r := &v.refused.Rows[i]
			refused = append(refused, []string{named(r), count(r.Refused), count(r.Least), count(r.Most), blocked(r)})
		}
		refused.write(&b)
	}
	if width <= 0 {
		return b.String()
	}
	lines := strings.Split(b.String(), "\n")
	for i := range lines {
		lines[i] = runewidth.Truncate(lines[i], width, "…")
	}
	return strings.Join(lines, "\n")
}

// limit returns the row of a limit.
func (v view) limit(l *inspect.LimitSummary) []string {
	row := []string{" ", printable(l.Name), printable(l.Policy), "-", "-", "-", "ok"}
	if l.Name == v.chosen {
		row[0] = ">"
	}
	if n := len(l.Points); n > 0 && l.Figures["Admitted"] != nil {
		p := l.Points[n-1]
		row[3], row[4] = rate(p.Admitted), rate(p.Refused)
	}
	if keys, ok := l.Figures["Keys"].(float64); ok {
		row[5] = count(uint64(keys))
	}
	if l.Health != "" || l.Trouble != "" {
		row[6] = printable(strings.Trim(l.Health+"; "+l.Trouble, "; "))
	}
	return row
}

// table is rows of cells, the head first. A column whose head begins with > is aligned right.
type table [][]string

func (t table) write(b *strings.Builder) {
	widths := make([]int, len(t[0]))
	right := make([]bool, len(t[0]))
	for i, head := range t[0] {
		t[0][i], right[i] = strings.CutPrefix(head, ">")
	}
	for _, row := range t {
		for i, cell := range row {
			widths[i] = max(widths[i], runewidth.StringWidth(cell))
		}
	}
	for _, row := range t {
		var line strings.Builder
		for i, cell := range row {
			if i > 0 {
				line.WriteString("  ")
			}
			if right[i] {
				line.WriteString(runewidth.FillLeft(cell, widths[i]))
			} else {
				line.WriteString(runewidth.FillRight(cell, widths[i]))
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
}

// longestName bounds the width of a key.
const longestName = 48

// named returns what a row is called: its key, or the beginning of its ID.
func named(r *inspect.Row) string {
	if r.Key == "" {
		return "#" + printable(r.ID[:min(len(r.ID), 12)])
	}
	return runewidth.Truncate(printable(r.Key), longestName, "…")
}

// printable returns a text without what a terminal might take for a command.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}

func many(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func count(n uint64) string        { return strconv.FormatUint(n, 10) }
func percent(share float64) string { return fmt.Sprintf("%.0f%%", 100*share) }

func rate(perSecond float64) string {
	if perSecond < 10 && perSecond != float64(int(perSecond)) {
		return fmt.Sprintf("%.1f", perSecond)
	}
	return fmt.Sprintf("%.0f", perSecond)
}

// seconds writes a time with two or three digits.
func seconds(s float64) string {
	switch {
	case s <= 0:
		return "0s"
	case s < 1:
		return fmt.Sprintf("%.0fms", max(1, 1000*s))
	case s < 120:
		return fmt.Sprintf("%.0fs", s)
	case s < 2*3600:
		return fmt.Sprintf("%.0fm", s/60)
	case s < 2*86400:
		return fmt.Sprintf("%.0fh", s/3600)
	}
	return fmt.Sprintf("%.0fd", s/86400)
}

func blocked(r *inspect.Row) string {
	if r.Blocked <= 0 {
		return ""
	}
	return "for " + seconds(r.Blocked)
}

// age says how old a list is, if it is a second or more, or that there is none yet.
func age(l *inspect.List) string {
	switch {
	case l.Pending:
		return ": the keys are being gone through"
	case l.Age >= 1:
		return ", " + seconds(l.Age) + " ago"
	}
	return ""
}

// returns says after which time the next unit of a key returns.
func returns(r *inspect.Row) string {
	if r.Returns < 0 {
		return "never"
	}
	return seconds(r.Returns)
}
