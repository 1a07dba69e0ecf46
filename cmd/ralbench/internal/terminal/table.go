package terminal

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/table"
	layout "github.com/jedib0t/go-pretty/v6/text"

	"github.com/ral-limiter/ral/cmd/ralbench/internal/report"
)

const (
	DefaultWidth = 100 // if there is no terminal
	minWidth     = 60  // narrower terminals get lines that do not fit
)

// nameWidth is the least width of the column of contenders, signs included.
const nameWidth = 18

// Table returns a table below a line that says what it is about.
func (p printer) Table(t report.Table) string {
	about := ""
	if t.About != "" {
		about = p.Line("", "%s: %s", t.Title, t.About)
	}
	return "\n" + about + p.Rows(t)
}

// Rows returns a table, in as many parts as the width requires. Yardsticks stand apart.
func (p printer) Rows(t report.Table) (text string) {
	end := ""
	if t.Columns[len(t.Columns)-1].Width > 0 { // room for marks
		end = " "
	}
	widths := make([]int, len(t.Columns))
	for i, head := range t.Columns {
		widths[i] = max(head.Width, utf8.RuneCountInString(head.Name+end))
		if end != "" && i == 0 {
			widths[i] = nameWidth
		}
		for _, r := range t.Rows {
			cell := r.Cells[i]
			if !head.Words {
				cell = strings.TrimSuffix(cell, report.Mark) + end
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, part := range split(t.Columns, widths, max(p.width, minWidth)) {
		limits := fit(t.Columns, part, widths, max(p.width, minWidth))
		shown := table.NewWriter()
		shown.SetStyle(table.StyleLight)
		shown.Style().Options.DrawBorder = false
		shown.Style().Options.SeparateColumns = false
		shown.Style().Box.PaddingRight = ""
		shown.Style().Format.Header = layout.FormatDefault
		var heads table.Row
		var configs []table.ColumnConfig
		for n, i := range part {
			columnConfig := table.ColumnConfig{Number: n + 1, WidthMax: limits[i], WidthMaxEnforcer: layout.WrapSoft, Align: layout.AlignRight, AlignHeader: layout.AlignRight}
			if end != "" && limits[i] == 0 {
				columnConfig.WidthMin = widths[i]
			}
			head := t.Columns[i].Name + end
			if t.Columns[i].Words {
				columnConfig.Align, columnConfig.AlignHeader, head = layout.AlignLeft, layout.AlignLeft, t.Columns[i].Name
			}
			heads, configs = append(heads, head), append(configs, columnConfig)
		}
		shown.AppendHeader(heads)
		shown.SetColumnConfigs(configs)
		for n, row := range t.Rows {
			if n > 0 && row.Kind != report.KindYardstick && row.Kind != report.KindKnown && isYardstick(t.Rows[:n]) {
				shown.AppendSeparator()
			}
			var cells table.Row
			for _, i := range part {
				cell := row.Cells[i]
				if !t.Columns[i].Words && !strings.HasSuffix(cell, report.Mark) {
					cell += end
				}
				cells = append(cells, cell)
			}
			shown.AppendRow(cells)
		}
		text += shown.Render() + "\n"
	}
	return text
}

// isYardstick reports whether the last contender of the rows is a yardstick.
func isYardstick(rows []report.Row) bool {
	i := len(rows) - 1
	for ; rows[i].Kind == report.KindKnown; i-- {
	}
	return rows[i].Kind == report.KindYardstick
}

// split cuts columns into parts that fit the width beside the first. It cuts between groups, and
// within a group only if that is too wide.
func split(heads []report.Head, widths []int, width int) (parts [][]int) {
	part, used := []int{0}, widths[0]+1
	for i := 1; i < len(heads); i++ {
		needed := 0
		for j := i; j < len(heads) && (j == i || heads[j].Group == heads[i].Group); j++ {
			needed += widths[j] + 1
		}
		begins := heads[i].Group != heads[i-1].Group
		if !heads[i].Words && len(part) > 1 && heads[i].Width > 0 &&
			(used+widths[i]+1 > width || begins && used+needed > width) {
			parts, part, used = append(parts, part), []int{0}, widths[0]+1
		}
		part, used = append(part, i), used+widths[i]+1
	}
	return append(parts, part)
}

// minTextWidth is the least width to which a column of words is narrowed.
const minTextWidth = 9

// fit returns the greatest width of each column, 0 for unbounded, such that rows fit the width. The
// widest columns of words are wrapped first; columns of figures stay whole.
func fit(heads []report.Head, part, widths []int, width int) []int {
	natural, limits := slices.Clone(widths), make([]int, len(widths))
	for {
		total, widest := 0, -1
		for _, i := range part {
			total += natural[i] + 1
			if heads[i].Words && natural[i] > minTextWidth && (widest < 0 || natural[i] > natural[widest]) {
				widest = i
			}
		}
		if total <= width || widest < 0 {
			return limits
		}
		natural[widest]--
		limits[widest] = natural[widest]
	}
}

// Wrapped breaks a text into lines that fit the width. The first begins with lead, others are
// indented.
func Wrapped(lead, words string, width int) string {
	room := max(width, minWidth) - utf8.RuneCountInString(lead)
	lines, line := []string(nil), ""
	for _, word := range strings.Fields(words) {
		if line != "" && utf8.RuneCountInString(line+" "+word) > room {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	indent := strings.Repeat(" ", utf8.RuneCountInString(lead))
	return lead + strings.Join(append(lines, line), "\n"+indent) + "\n"
}
