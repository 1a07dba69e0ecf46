// Package terminal shows runs of ralbench and their progress as text that fits a terminal's width.
//
// Start reading at [Write].
package terminal

import (
	"strings"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/ral-limiter/ral/cmd/ralbench/report"
)

const (
	DefaultWidth = 100 // if there is no terminal
	minWidth     = 60  // narrower terminals get lines that do not fit
)

// nameWidth is the least width of the column of contenders, signs included.
const nameWidth = 18

// newTable returns a table in the common look, with one space between columns.
func newTable() table.Writer {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.Style().Options.DrawBorder = false
	t.Style().Options.SeparateColumns = false
	t.Style().Box.PaddingRight = ""
	t.Style().Format.Header = text.FormatDefault
	return t
}

// split cuts columns into tables that fit the width beside a column of names. It cuts between
// groups, and within a group only if that is too wide.
func split(columns []report.Column, names, width int) (tables [][]report.Column) {
	room := max(width, minWidth) - (names + 1)
	var now []report.Column
	used := 0
	add := func(columns []report.Column) {
		now = append(now, columns...)
		used += widthOf(columns)
	}
	cut := func() {
		if len(now) > 0 {
			tables = append(tables, now)
		}
		now, used = nil, 0
	}
	for _, group := range groups(columns) {
		if used+widthOf(group) <= room {
			add(group)
			continue
		}
		cut()
		if widthOf(group) <= room {
			add(group)
			continue
		}
		for i := range group {
			if used+widthOf(group[i:i+1]) > room {
				cut()
			}
			add(group[i : i+1])
		}
	}
	cut()
	return tables
}

func groups(columns []report.Column) (groups [][]report.Column) {
	for i, c := range columns {
		if i == 0 || c.Group != columns[i-1].Group {
			groups = append(groups, nil)
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], c)
	}
	return groups
}

// widthOf returns the width of columns, with the space before each.
func widthOf(columns []report.Column) (n int) {
	for _, c := range columns {
		n += max(c.Width, utf8.RuneCountInString(c.Name+report.NoMark)) + 1
	}
	return n
}

// minTextWidth is the least width to which a column of words is narrowed.
const minTextWidth = 9

// fit returns the greatest width of each column, 0 for unbounded, such that rows fit the width. The
// widest columns of words are wrapped first; columns of figures stay whole.
func fit(cells [][]string, words func(column int) bool, width int) []int {
	var natural []int
	for _, row := range cells {
		for i, cell := range row {
			if i == len(natural) {
				natural = append(natural, 0)
			}
			natural[i] = max(natural[i], utf8.RuneCountInString(cell))
		}
	}
	limits := make([]int, len(natural))
	for {
		total, widest := 0, -1
		for i, n := range natural {
			total += n + 1
			if words(i) && n > minTextWidth && (widest < 0 || n > natural[widest]) {
				widest = i
			}
		}
		if total <= max(width, minWidth) || widest < 0 {
			return limits
		}
		natural[widest]--
		limits[widest] = natural[widest]
	}
}

// Wrapped breaks a text into lines that fit the width. The first begins with lead, others are
// indented.
func Wrapped(lead, text string, width int) string {
	indent := strings.Repeat(" ", utf8.RuneCountInString(lead))
	var b strings.Builder
	b.WriteString(lead)
	at := utf8.RuneCountInString(lead)
	for i, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case at+1+n > max(width, minWidth):
			b.WriteString("\n" + indent)
			at = len(indent)
		default:
			b.WriteString(" ")
			at++
		}
		b.WriteString(word)
		at += n
	}
	return b.String() + "\n"
}
