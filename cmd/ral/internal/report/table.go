package report

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/mattn/go-runewidth"
)

// Table is rows of cells, the head first. A head that begins with > aligns its column right.
type Table [][]string

// Add appends a row of the texts of cells.
func (t *Table) Add(cells ...any) {
	row := make([]string, len(cells))
	for i, cell := range cells {
		row[i] = fmt.Sprint(cell)
	}
	*t = append(*t, row)
}

// narrowest is the least width to which a column of text is cut.
const narrowest = 8

// Write writes the table without control characters. Its widest columns of text are cut to the width, unless 0.
func (t Table) Write(builder *strings.Builder, width int) {
	shown, right := make([][]string, len(t)), make([]bool, len(t[0]))
	for i, head := range t[0] {
		right[i] = strings.HasPrefix(head, ">")
	}
	for r, row := range t {
		for _, cell := range row {
			if r == 0 {
				cell = strings.TrimPrefix(cell, ">")
			}
			shown[r] = append(shown[r], Printable(cell))
		}
	}
	widths := Table(shown).widths()
	for over := sum(widths) + 2*(len(widths)-1) - width; width > 0 && over > 0; over-- {
		widest := -1
		for i, w := range widths {
			if !right[i] && w > narrowest && (widest < 0 || w > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
	}
	for _, row := range shown {
		var line strings.Builder
		for i, cell := range row {
			if i > 0 {
				line.WriteString("  ")
			}
			if right[i] {
				line.WriteString(runewidth.FillLeft(cell, widths[i]))
			} else {
				line.WriteString(runewidth.FillRight(runewidth.Truncate(cell, widths[i], "…"), widths[i]))
			}
		}
		builder.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
}

// Without returns the table without the columns of these heads, the first first, as far as they must go
// for the rest to fit the width. A width of 0 is any.
func (t Table) Without(width int, heads ...string) Table {
	for _, head := range heads {
		widths := t.widths()
		i := slices.Index(t[0], head)
		if width <= 0 || i < 0 || sum(widths)+2*(len(widths)-1) <= width {
			continue
		}
		rest := make(Table, len(t))
		for r, row := range t {
			rest[r] = slices.Delete(slices.Clone(row), i, i+1)
		}
		t = rest
	}
	return t
}

// widths returns the width of each column's widest cell.
func (t Table) widths() []int {
	widths := make([]int, len(t[0]))
	for r, row := range t {
		for i, cell := range row {
			if r == 0 {
				cell = strings.TrimPrefix(cell, ">")
			}
			widths[i] = max(widths[i], runewidth.StringWidth(cell))
		}
	}
	return widths
}

func sum(all []int) (n int) {
	for _, v := range all {
		n += v
	}
	return n
}

// Printable replaces characters that a terminal might take for a command.
func Printable(text string) string {
	return strings.Map(func(char rune) rune {
		if unicode.IsPrint(char) {
			return char
		}
		return '?'
	}, text)
}
