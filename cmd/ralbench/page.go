package main

import (
	_ "embed"
	"html/template"
	"io"
	"slices"
	"strings"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/fleetbench"
)

// The page is one file that needs no other. Its charts are drawn by Observable
// Plot, on top of D3 (both ISC licences, beside them in page/vendor). Of the
// libraries looked at, it alone has what is needed here without code of our own:
// whiskers and logarithmic axes, SVG, whose text tests and screen readers can
// read, and colours from the style sheet, so that light and dark need no second
// drawing. Apache ECharts is twice as large (1.1 MB against 0.5 MB in every
// report) and has no whiskers; uPlot and Chart.js draw on a canvas.
var (
	//go:embed page/page.html
	pageText string
	//go:embed page/style.css
	pageStyle string
	//go:embed page/charts.js
	pageScript string
	//go:embed page/vendor/d3/d3.min.js
	d3 string
	//go:embed page/vendor/plot/plot.umd.min.js
	plot string
)

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{"plural": plural}).Parse(pageText))

// pageView is what the template shows.
type pageView struct {
	Style     template.CSS
	Libraries []template.JS
	Script    template.JS
	// Data is for the script. html/template writes it as JSON that cannot end the
	// script element.
	Data pageData

	Doc      document
	Time     string
	Setup    [][2]string // names and values
	Again    []string    // commands
	Audit    auditSummary
	Legend   []contenderStyle
	Overview *chart
	Sections []chapter
	Fleet    *fleetChapter // nil but for fleet mode
	Compare  *comparePage
	Glossary string
}

// pageData is what the script draws.
type pageData struct {
	Contenders []contenderStyle `json:"contenders"`
	Charts     []chart          `json:"charts"`
}

// contenderStyle is how a contender looks in all charts. The script and the style
// sheet know what the numbers mean.
type contenderStyle struct {
	Name  string `json:"name"`
	About string `json:"-"`
	Kind  string `json:"kind"`  // ral, floor, or peer
	Index int    `json:"index"` // among those of its kind
}

// chapter is a workload.
type chapter struct {
	Name, About string
	Charts      []chart
	Tables      []pageTable
	Audits      []auditRow
}

// writeHTML writes the document as a page. c is nil if nothing was compared.
func writeHTML(w io.Writer, d document, c *comparison) error {
	p := newPage(d)
	if c != nil {
		p.Compare = newComparePage(*c)
	}
	return pageTemplate.Execute(w, p)
}

func newPage(d document) pageView {
	p := pageView{
		Style: template.CSS(pageStyle), Script: template.JS(pageScript),
		Libraries: []template.JS{template.JS(d3), template.JS(plot)},
		Doc:       d, Time: d.Time.Format("2 January 2006, 15:04 MST"),
		Setup: setupOf(d), Again: again(d), Glossary: glossary(),
		Legend: styles(d.Workloads),
	}
	p.Data.Contenders = p.Legend
	if d.Fleet != nil {
		p.Fleet = newFleetChapter(d)
		p.Data.Charts = append(p.Data.Charts, p.Fleet.Charts...)
		for _, row := range shareAudits(d.Fleet.Shares) {
			p.Audit.add(row)
		}
	}
	claims := anyClaims(d.Workloads)
	groups := grouped(d.Workloads)
	if c, ok := overview(groups, d.Machine.Cores); ok {
		p.Overview = &c
		p.Data.Charts = append(p.Data.Charts, c)
	}
	for _, g := range groups {
		s := chapter{Name: g.name, About: sentence(g.cpus[0].About), Charts: g.charts(d.Machine.Cores)}
		p.Data.Charts = append(p.Data.Charts, s.Charts...)
		for _, w := range g.cpus {
			s.Tables = append(s.Tables, tablesOf(w)...)
			for _, r := range w.Results {
				if r.Audit != nil {
					row := auditRow{r.Contender, taskName(w.Name, w.CPU), auditLine(*r.Audit), r.Audit.Clean(), r.Audit.Binds, r.Exact || !claims}
					s.Audits = append(s.Audits, row)
					p.Audit.add(row)
				}
			}
		}
		p.Sections = append(p.Sections, s)
	}
	return p
}

// styles gives each contender its look, in the order in which they come.
func styles(workloads []bench.WorkloadReport) (all []contenderStyle) {
	n := make(map[string]int)
	about := make(map[string]string)
	for _, c := range slices.Concat(fleetbench.Contenders("", ""), contenders()) {
		about[c.Name] = c.About
	}
	for _, w := range workloads {
		for _, r := range w.Results {
			if slices.ContainsFunc(all, func(s contenderStyle) bool { return s.Name == r.Contender }) {
				continue
			}
			kind := kindOf(r)
			all = append(all, contenderStyle{Name: r.Contender, About: about[r.Contender], Kind: kind, Index: n[kind]})
			n[kind]++
		}
	}
	return all
}

func kindOf(r bench.Result) string {
	switch {
	case r.IsFloor:
		return "floor"
	case strings.HasPrefix(r.Contender, "Ral "):
		return "ral"
	}
	return "peer"
}
