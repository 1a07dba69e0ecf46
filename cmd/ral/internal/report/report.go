// Package report shows tables and charts as text in a terminal or as a web page in a self-contained file.
//
// Start reading at [Report]. The package knows no limit.
package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"
)

// Report is a document. All its texts may have been written by others: they are escaped, and control characters
// replaced.
type Report struct {
	Title string
	Lead  []string
	Parts []Part
	// Notes say what the figures do not tell.
	Notes []string
}

// Part is a section with a table, a chart or both.
type Part struct {
	Title, About string
	// Table begins with its head. A head that begins with > aligns its column right.
	Table Table
	Chart Chart
}

// Chart has a bar for each row, and may have none.
type Chart struct {
	// Whole and Marked name the bar and its marked part.
	Whole, Marked string
	Bars          []Bar
}

// Bar is a row of a chart.
type Bar struct {
	Label         string
	Whole, Marked int64
}

func (c *Chart) highest() (n int64) {
	for _, bar := range c.Bars {
		n = max(n, bar.Whole)
	}
	return max(n, 1)
}

const barWidth = 50 // columns of a bar in a terminal

// Text writes the report for a terminal.
func (r *Report) Text(w io.Writer) error {
	var builder strings.Builder
	line := func(text string) { builder.WriteString(Printable(text) + "\n") }
	line(r.Title)
	for _, lead := range r.Lead {
		line(lead)
	}
	for _, part := range r.Parts {
		builder.WriteByte('\n')
		line(strings.TrimSpace(part.Title + ": " + part.About))
		if len(part.Table) > 0 {
			part.Table.Write(&builder, 0)
		}
		part.Chart.text(&builder)
	}
	builder.WriteByte('\n')
	for _, note := range r.Notes {
		line("* " + note)
	}
	_, err := io.WriteString(w, builder.String())
	return err
}

// text writes a row for each bar. A marked part that is too short for a column still has one.
func (c *Chart) text(builder *strings.Builder) {
	if len(c.Bars) == 0 {
		return
	}
	highest := c.highest()
	rows := Table{{"", "", ">" + c.Whole, ">" + c.Marked}}
	for _, bar := range c.Bars {
		columns := func(n int64) int {
			full := int(float64(n) / float64(highest) * barWidth)
			return min(max(full, int(min(n, 1))), barWidth)
		}
		whole, marked := columns(bar.Whole), columns(bar.Marked)
		rows = append(rows, []string{
			bar.Label, strings.Repeat("█", marked) + strings.Repeat("░", max(whole-marked, 0)), fmt.Sprint(bar.Whole), fmt.Sprint(bar.Marked),
		})
	}
	rows.Write(builder, 0)
}

//go:embed page.html
var pageText string

const (
	barHeight  = 14 // pixels, with the space below
	chartWidth = 600
)

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"clean":  Printable,
	"height": func(chart Chart) int { return barHeight * len(chart.Bars) },
	"top":    func(i int) int { return barHeight * i },
	"length": func(chart Chart, n int64) int64 { return int64(float64(n) / float64(chart.highest()) * chartWidth) },
	"right":  func(head string) bool { return strings.HasPrefix(head, ">") },
	"name":   func(head string) string { return Printable(strings.TrimPrefix(head, ">")) },
}).Parse(pageText))

// Page writes the report as a web page without a script, which loads nothing.
func (r *Report) Page(w io.Writer) error { return page.Execute(w, r) }
