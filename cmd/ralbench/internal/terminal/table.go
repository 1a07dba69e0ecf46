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
	// Cells of figures end with a mark or with room for one, unless the columns have no least width.
	end, least := "", 0
	if t.Columns[len(t.Columns)-1].Width > 0 {
		end, least = " ", nameWidth
	}
	cell := func(row report.Row, i int) string {
		if t.Columns[i].Words || strings.HasSuffix(row.Cells[i], report.Mark) {
			return row.Cells[i]
		}
		return row.Cells[i] + end
	}
	head := report.Row{}
	widths := make([]int, len(t.Columns))
	for i, column := range t.Columns {
		head.Cells = append(head.Cells, column.Name)
		for _, row := range append(t.Rows, head) {
			widths[i] = max(widths[i], column.Width, utf8.RuneCountInString(cell(row, i)))
		}
	}
	widths[0] = max(widths[0], least)
	for _, part := range split(t.Columns, widths, max(p.width, minWidth)) {
		limits := fit(t.Columns, part, widths, max(p.width, minWidth))
		shown := table.NewWriter()
		shown.SetStyle(style)
		cells := func(row report.Row) (cells table.Row) {
			for _, i := range part {
				cells = append(cells, cell(row, i))
			}
			return cells
		}
		var configs []table.ColumnConfig
		for n, i := range part {
			config := table.ColumnConfig{Number: n + 1, WidthMax: limits[i], WidthMaxEnforcer: layout.WrapSoft, Align: layout.AlignRight, AlignHeader: layout.AlignRight}
			if end != "" && limits[i] == 0 {
				config.WidthMin = widths[i]
			}
			if t.Columns[i].Words {
				config.Align, config.AlignHeader = layout.AlignLeft, layout.AlignLeft
			}
			configs = append(configs, config)
		}
		shown.AppendHeader(cells(head))
		shown.SetColumnConfigs(configs)
		// last is the kind of the last contender above.
		last := ""
		for _, row := range t.Rows {
			if last == report.KindYardstick && row.Kind != report.KindYardstick && row.Kind != report.KindKnown {
				shown.AppendSeparator()
			}
			if row.Kind != report.KindKnown {
				last = row.Kind
			}
			shown.AppendRow(cells(row))
		}
		text += shown.Render() + "\n"
	}
	return text
}

// style has a line below the heads and no others.
var style = func() table.Style {
	style := table.StyleLight
	style.Options.DrawBorder, style.Options.SeparateColumns = false, false
	style.Box.PaddingRight, style.Format.Header = "", layout.FormatDefault
	return style
}()

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
