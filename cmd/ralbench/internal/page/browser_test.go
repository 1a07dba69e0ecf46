package page

import (
	_ "embed"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/report"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/testkit/reporttest"
	"github.com/ral-limiter/ral/cmd/ralbench/testkit/browser"
)

var (
	//go:embed testdata/inspect.js
	inspectScript string
	//go:embed testdata/contrast.js
	contrastScript string
)

type box struct{ X, Y, Width, Height float64 }

func (b box) middle() float64 { return b.X + b.Width/2 }

type drawn struct {
	ID, Label, Role                                   string
	Svgs, Lines                                       int
	Box                                               *box
	Bars, Whiskers, Dots, Floors                      []box
	Figures, Texts, Legend, Outside, Touching, Struck []string
}

func TestPageInABrowser(t *testing.T) {
	run := reporttest.Run(t)
	floor := run.Workloads[7].Results[0] // beside the xsync map, where labels could overlap
	floor.Name, floor.Yardstick = "floor", bench.YardstickFloor
	run.Workloads[7].Results = append(run.Workloads[7].Results, floor)
	run.Workloads = append(run.Workloads, reporttest.Calls())
	fleet, b := reporttest.Fleet(t), browser.Start(t)
	desktop := browser.View{Scheme: "light", Width: 1280, Height: 900}

	for name, c := range map[string]struct {
		report.Document
		browser.View
	}{
		"desktop-light":      {run, desktop},
		"phone-dark":         {run, browser.View{Scheme: "dark", Width: 360, Height: 740}},
		"fleet-desktop-dark": {fleet, browser.View{Scheme: "dark", Width: 1280, Height: 900}},
		"fleet-phone-light":  {fleet, browser.View{Scheme: "light", Width: 390, Height: 740}},
		"hostile-names":      {hostile(), desktop},
	} {
		t.Run(name, func(t *testing.T) {
			o := b.Open(t, written(t, c.Document), c.View)
			o.Shoot(name + "-folded")
			if !c.Settings.Fleet {
				assert.Less(t, browser.Eval[int](o, "document.documentElement.scrollHeight"), 7000, "folded")
			}
			unfold(o)
			assertDrawn(t, o, newView(c.Document).Data)
			if name != "hostile-names" {
				assertReadable(t, o, c.View)
				assertFits(t, o, c.View)
				assertFilled(t, o)
			}
			if c.Settings.Fleet {
				labels := browser.Eval[[]string](o, `[...document.querySelectorAll('g.floor-label text')].map((e) => e.textContent)`)
				assert.Contains(t, labels, "redis_rate")
				assert.Contains(t, labels, "goal of Ral fleet leased 95.0%")
			}
			o.Shoot(name)
			o.Quiet()
		})
	}

	t.Run("pointed at, then made narrower", func(t *testing.T) {
		o, want := b.Open(t, written(t, run), desktop), newView(run).Data
		browser.Eval[int](o, `document.querySelector('nav a[href="#w-uniform"]').click() ?? 0`)
		o.Until(`document.querySelector("#w-uniform > details").open`)
		unfold(o)
		assertTells(t, o, want)
		o.Do(chromedp.EmulateViewport(400, 800))
		o.Until("innerWidth === 400 && " + allDrawn)
		assertDrawn(t, o, want)
		assertFits(t, o, browser.View{Width: 400})
		o.Quiet()
	})

	t.Run("without scripts", func(t *testing.T) {
		o := b.Open(t, written(t, run), browser.View{Scheme: "light", Width: 1280, Height: 900, NoScript: true})
		browser.Eval[int](o, openAll)
		assertTables(t, o, run)
		o.Shoot("no-script")
		o.Quiet()
	})
}

const allDrawn = `[...document.querySelectorAll("[data-chart]")].every((h) => h.dataset.width === String(h.clientWidth))`

const openAll = `document.querySelectorAll("details").forEach((d) => (d.open = true)) ?? 0`

// unfold opens all details and waits for their charts.
func unfold(o *browser.Tab) {
	browser.Eval[int](o, openAll)
	o.Until(allDrawn)
}

// written writes a page, and returns its address.
func written(t *testing.T, d report.Document) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "report.html")
	require.NoError(t, os.WriteFile(file, []byte(pageOf(t, d)), 0o600))
	return (&url.URL{Scheme: "file", Path: file}).String()
}

func assertDrawn(t *testing.T, o *browser.Tab, want data) {
	t.Helper()
	charts := browser.Eval[[]drawn](o, inspectScript)
	require.Len(t, charts, len(want.Charts))
	for i, got := range charts {
		c := want.Charts[i]
		require.Equal(t, c.ID, got.ID)
		require.Equal(t, 1, got.Svgs, c.ID)
		assert.Greater(t, got.Box.Width, 200.0, c.ID)
		assert.Greater(t, got.Box.Height, 80.0, c.ID)
		assert.Equal(t, "img", got.Role, c.ID)
		assert.Equal(t, summary(t, c), got.Label, c.ID)

		var names []string
		spreads := 0
		for _, p := range c.Points {
			assert.Contains(t, got.Label, p.Text, c.ID)
			if !slices.Contains(names, p.Contender) {
				names = append(names, p.Contender)
			}
			if p.Min != nil {
				spreads++
			}
		}
		assert.Equal(t, spreads, len(got.Whiskers), "%s: whiskers", c.ID)
		switch c.Kind {
		case kindBars:
			assertBars(t, c, got)
		case kindDots:
			require.Len(t, got.Dots, len(c.Points), c.ID)
			assertProportional(t, c.ID, c.Points, func(p point) float64 { return math.Log(p.Value) }, got.Dots, box.middle)
			assert.Equal(t, names, got.Legend, c.ID)
		default:
			assert.Equal(t, len(c.Points), len(got.Dots), "%s: dots", c.ID)
			assert.Equal(t, len(names), got.Lines, c.ID)
			assert.Equal(t, names, got.Legend, c.ID)
		}
		rows := 1
		if c.Kind == kindDots {
			rows = len(groupsOf(c)) // a line goes through each
		}
		assert.Len(t, got.Floors, len(c.Lines)*rows, c.ID)
	}
}

func groupsOf(c chart) (groups []string) {
	for _, p := range c.Points {
		if !slices.Contains(groups, p.Group) {
			groups = append(groups, p.Group)
		}
	}
	return groups
}

func assertBars(t *testing.T, c chart, got drawn) {
	t.Helper()
	if !assert.Equal(t, len(c.Points), len(got.Bars), "%s: bars", c.ID) {
		return
	}
	// All lengths, whiskers and the floor's line included, start at zero and share a scale.
	longest := 0
	for i, p := range c.Points {
		if p.Value > c.Points[longest].Value {
			longest = i
		}
	}
	scale, zero := got.Bars[longest].Width/c.Points[longest].Value, got.Bars[longest].X
	for i, l := range c.Lines {
		assert.InDelta(t, zero+scale*l.Value, got.Floors[i].middle(), 2, "%s: %s", c.ID, l.Name)
	}
	whiskers := got.Whiskers
	for i, p := range c.Points {
		assert.InDelta(t, scale*p.Value, got.Bars[i].Width, 2, "%s: %s, %s", c.ID, p.Contender, p.Text)
		if p.Min != nil && len(whiskers) > 0 {
			assert.InDelta(t, zero+scale**p.Min, whiskers[0].X, 2, "%s: %s, least", c.ID, p.Contender)
			assert.InDelta(t, scale*(*p.Max-*p.Min), whiskers[0].Width, 2, "%s: %s, most", c.ID, p.Contender)
			whiskers = whiskers[1:]
		}
		figure, _, _ := strings.Cut(p.Text, " (")
		assert.Equal(t, figure, got.Figures[i], c.ID)
	}
}

// assertProportional checks that places on the page are proportional to the figures.
func assertProportional(t *testing.T, id string, points []point, value func(point) float64, boxes []box, place func(box) float64) {
	t.Helper()
	least, most := 0, 0
	for i, p := range points {
		if value(p) < value(points[least]) {
			least = i
		}
		if value(p) > value(points[most]) {
			most = i
		}
	}
	span := value(points[most]) - value(points[least])
	if span == 0 {
		return
	}
	for i, p := range points {
		share := (value(p) - value(points[least])) / span
		want := place(boxes[least]) + share*(place(boxes[most])-place(boxes[least]))
		assert.InDelta(t, want, place(boxes[i]), 2, "%s: %s, %s", id, p.Contender, p.Text)
	}
}

// assertReadable checks contrasts by WCAG AA, and the scheme.
func assertReadable(t *testing.T, o *browser.Tab, v browser.View) {
	t.Helper()
	type least struct {
		Checked int
		Least   float64
		Of      string
	}
	got := browser.Eval[struct {
		Texts, Marks least
		Page         float64
	}](o, contrastScript)
	assert.Greater(t, got.Texts.Checked, 500)
	assert.Greater(t, got.Marks.Checked, 100)
	assert.GreaterOrEqual(t, got.Texts.Least, 4.5, "text %q", got.Texts.Of)
	assert.GreaterOrEqual(t, got.Marks.Least, 3.0, "mark %q", got.Marks.Of)
	assert.Equal(t, v.Scheme == "dark", got.Page < 0.2, "the page's background")
}

// assertFilled checks that the charts leave no part of a row empty.
func assertFilled(t *testing.T, o *browser.Tab) {
	t.Helper()
	free := browser.Eval[[]string](o, `[...document.querySelectorAll(".charts")].filter((row) => {
		const last = row.lastElementChild.getBoundingClientRect();
		return row.getBoundingClientRect().right - last.right > 2;
	}).map((row) => row.lastElementChild.querySelector(".title").textContent)`)
	assert.Empty(t, free, "nothing stands beside these")
}

// assertFits checks that only wide tables scroll sideways, and that no text of a chart is cut,
// covered or crossed.
func assertFits(t *testing.T, o *browser.Tab, v browser.View) {
	t.Helper()
	o.Fits(v.Width)
	charts := browser.Eval[[]drawn](o, inspectScript)
	for _, c := range charts {
		assert.Empty(t, c.Outside, "%s: cut off", c.ID)
		assert.Empty(t, c.Touching, "%s: labels that touch", c.ID)
		assert.Empty(t, c.Struck, "%s: labels that a line crosses", c.ID)
	}
	if v.Width < 600 {
		cut := browser.Eval[[]string](o, `[...document.querySelectorAll(".scroll")].filter((s) => s.scrollWidth > s.clientWidth).map((s) => s.ariaLabel)`)
		assert.Empty(t, cut, "tables that are cut")
	}
}

// assertTells points at a bar and reads its tip.
func assertTells(t *testing.T, o *browser.Tab, want data) {
	t.Helper()
	i := slices.IndexFunc(want.Charts, func(c chart) bool { return c.Kind == kindBars })
	chart := `[data-chart="` + want.Charts[i].ID + `"]`
	o.Do(chromedp.ScrollIntoView(chromedp.CSS(chart)))
	charts := browser.Eval[[]drawn](o, inspectScript)
	bar := charts[i].Bars[0]
	o.Do(chromedp.MouseEvent("mouseMoved", bar.middle(), bar.Y+bar.Height/2),
		chromedp.WaitReady(chromedp.CSS(chart+` g[aria-label="tip"] text`)))
	tip := browser.Eval[string](o, `document.querySelector('`+chart+` g[aria-label="tip"]').textContent`)
	assert.Contains(t, tip, want.Charts[i].Points[0].Text)
}

func assertTables(t *testing.T, o *browser.Tab, d report.Document) {
	t.Helper()
	frames := browser.Eval[int](o, `[...document.querySelectorAll("figure")].filter((f) => f.getClientRects().length > 0).length`)
	assert.Zero(t, frames, "no empty frames")
	hints := browser.Eval[int](o, `[...document.querySelectorAll("noscript")].filter((f) => f.innerText.includes("tables")).length`)
	assert.Equal(t, 1, hints)
	for _, w := range d.Workloads {
		for _, table := range report.Tables(w) {
			rows := browser.Eval[[][]string](o, `[...document.querySelectorAll('[aria-label="`+table.Title+`"] tbody tr')].map((r) => [...r.cells].map((c) => c.innerText.trim()))`)
			var want [][]string
			for _, r := range table.Rows {
				var cells []string
				for _, c := range r.Cells {
					cells = append(cells, strings.TrimSpace(c))
				}
				want = append(want, cells)
			}
			assert.Equal(t, want, rows, table.Title)
		}
	}
}
