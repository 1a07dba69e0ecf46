// Package page shows runs of ralbench as a web page in a self-contained file.
//
// Start reading at [Write]. charts.go decides the content of charts, charts.js draws them.
package page

import (
	_ "embed"
	"html/template"
	"io"
	"slices"
	"strings"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/format"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/report"
)

// The charts are drawn by Observable Plot, on top of D3 (both ISC licences, in libraries: modules
// leave out a folder vendor). It alone has whiskers, logarithmic axes, SVG with text for tests and
// screen readers, and colours from the style sheet. Apache ECharts has no whiskers and adds 1.1 MB
// to every report, not 0.5 MB; uPlot and Chart.js draw on a canvas.
var (
	//go:embed page.html
	pageText string
	//go:embed style.css
	pageStyle string
	//go:embed charts.js
	pageScript string
	//go:embed libraries/d3/d3.min.js
	d3 string
	//go:embed libraries/plot/plot.umd.min.js
	plot string
)

var pageTemplate = template.Must(template.New("page").Funcs(report.Funcs).Parse(pageText))

type view struct {
	Style     template.CSS
	Libraries []template.JS
	Script    template.JS
	// Data is for the script. html/template writes it as JSON that cannot end the script element.
	Data data

	Doc      report.Document
	Time     string
	Again    []string // commands
	Audited  bool
	Legend   []style
	Overview *chart
	Sections []section
	Glossary string
}

type data struct {
	Contenders []style `json:"contenders"`
	Charts     []chart `json:"charts"`
}

// style is the look of a contender in all charts. Script and style sheet interpret the numbers.
type style struct {
	Name    string        `json:"name"`
	About   string        `json:"-"`
	Promise bench.Promise `json:"-"`
	Kind    string        `json:"kind"`
	Index   int           `json:"index"` // within its kind
}

type section struct {
	Name, About, Why string
	Charts           []chart
	Tables           []report.Table
	Audits           []report.AuditRow
}

// Write writes the document as a page.
func Write(w io.Writer, d report.Document) error { return pageTemplate.Execute(w, newView(d)) }

func newView(d report.Document) view {
	v := view{
		Style: template.CSS(pageStyle), Script: template.JS(pageScript),
		Libraries: []template.JS{template.JS(d3), template.JS(plot)},
		Doc:       d, Time: d.Time.Format("2 January 2006, 15:04 MST"),
		Again: again(d), Glossary: report.Glossary, Legend: styles(d.Workloads),
	}
	v.Data.Contenders = v.Legend
	groups := grouped(d.Workloads)
	if c := overview(d, groups); len(c.Points) > 0 {
		v.Overview = &c
		v.Data.Charts = append(v.Data.Charts, c)
	}
	for _, g := range groups {
		s := section{Name: g.name, About: format.Sentence(g.cpus[0].About), Why: format.Sentence(g.cpus[0].Why), Charts: g.charts(d)}
		v.Data.Charts = append(v.Data.Charts, s.Charts...)
		for _, w := range g.cpus {
			s.Tables = append(s.Tables, tablesOf(d, w)...)
			s.Audits = append(s.Audits, report.AuditRows(w)...)
		}
		v.Audited = v.Audited || len(s.Audits) > 0
		v.Sections = append(v.Sections, s)
	}
	return v
}

// tablesOf returns the tables of a workload, the first with how it was measured.
func tablesOf(d report.Document, w bench.WorkloadReport) []report.Table {
	tables := report.Tables(w)
	for i := range tables {
		tables[i].About = format.Sentence(tables[i].About)
	}
	if len(tables) > 0 {
		var facts []string
		for _, fact := range append(report.Facts(d, w), format.Medians(report.Rounds(w))) {
			facts = append(facts, format.Sentence(fact))
		}
		tables[0].About = strings.Join(facts, " ")
	}
	return tables
}

// styles gives each contender its look, in the order of their first appearance.
func styles(workloads []bench.WorkloadReport) (all []style) {
	n := make(map[string]int)
	for _, w := range workloads {
		for _, r := range w.Results {
			if slices.ContainsFunc(all, func(s style) bool { return s.Name == r.Name }) {
				continue
			}
			kind := report.KindOf(r)
			all = append(all, style{Name: r.Name, About: r.About, Promise: r.Promise, Kind: kind, Index: n[kind]})
			n[kind]++
		}
	}
	return all
}
