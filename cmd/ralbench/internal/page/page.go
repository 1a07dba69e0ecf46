// Package page shows runs of ralbench as a web page in a self-contained file.
//
// Start reading at [Write]. charts.go decides the content of charts, charts.js draws them.
package page

import (
	_ "embed"
	"html/template"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/ral-limiter/ral/bench"
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

var pageTemplate = template.Must(template.New("page").Funcs(report.Funcs).Funcs(template.FuncMap{"quoted": quoted, "without": strings.TrimSuffix}).Parse(pageText))

var plain = regexp.MustCompile(`^[-\w./:=,+@%]+$`)

// quoted returns an argument as a shell takes it.
func quoted(arg string) string {
	if plain.MatchString(arg) {
		return arg
	}
	return strconv.Quote(arg)
}

type view struct {
	Style     template.CSS
	Libraries []template.JS
	Script    template.JS
	// Data is for the script. html/template writes it as JSON that cannot end the script element.
	Data data

	Doc      report.Document
	Overview *chart
	Sections []section
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

// section is a workload, by GOMAXPROCS.
type section struct {
	bench.Workload
	Reports []bench.WorkloadReport
	Charts  []chart
}

// Write writes the document as a page.
func Write(w io.Writer, document report.Document) error {
	return pageTemplate.Execute(w, newView(document))
}

func newView(document report.Document) view {
	v := view{
		Style: template.CSS(pageStyle), Script: template.JS(pageScript),
		Libraries: []template.JS{template.JS(d3), template.JS(plot)},
		Doc:       document,
	}
	v.Data.Contenders = styles(document.Workloads)
	groups := grouped(document.Workloads)
	if chart := overview(document, groups); len(chart.Points) > 0 {
		v.Overview = &chart
		v.Data.Charts = append(v.Data.Charts, chart)
	}
	for _, byName := range groups {
		s := section{byName.cpus[0].Workload, byName.cpus, byName.charts(document)}
		v.Data.Charts = append(v.Data.Charts, s.Charts...)
		v.Sections = append(v.Sections, s)
	}
	return v
}

// styles gives each contender its look, in the order of their first appearance.
func styles(workloads []bench.WorkloadReport) (all []style) {
	n := make(map[string]int)
	for _, w := range workloads {
		for _, result := range w.Results {
			if slices.ContainsFunc(all, func(style style) bool { return style.Name == result.Name }) {
				continue
			}
			kind := report.KindOf(result)
			all = append(all, style{Name: result.Name, About: result.About, Promise: result.Promise, Kind: kind, Index: n[kind]})
			n[kind]++
		}
	}
	return all
}
