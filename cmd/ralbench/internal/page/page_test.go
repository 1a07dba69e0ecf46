package page

import (
	"bytes"
	"html"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/format"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/report"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/testkit/reporttest"
)

func pageOf(t *testing.T, d report.Document) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, Write(&b, d))
	return b.String()
}

// withoutScripts returns the page without its libraries, which mention other pages.
func withoutScripts(page string) string {
	return regexp.MustCompile(`(?s)<script>.*?</script>`).ReplaceAllString(page, "<script></script>")
}

// textOf returns the page without its libraries as a reader sees it.
func textOf(t *testing.T, d report.Document) string {
	t.Helper()
	return html.UnescapeString(withoutScripts(pageOf(t, d)))
}

// summary returns a chart in words.
func summary(t *testing.T, c chart) string {
	t.Helper()
	var b strings.Builder
	require.NoError(t, pageTemplate.ExecuteTemplate(&b, "summary", c))
	return html.UnescapeString(b.String())
}

func TestPageNeedsNothingElse(t *testing.T) {
	d := reporttest.Run(t)
	page := pageOf(t, d)
	assert.Equal(t, 4, strings.Count(page, "</script>"), "the data, two libraries and the script")
	own := withoutScripts(page)
	assert.NotRegexp(t, `https?://|//[a-z]|\bsrc=|@import|url\(`, own)
	assert.Contains(t, page, `content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"`)
	assert.Less(t, len(page), 1_000_000)
	for _, link := range regexp.MustCompile(`href="#([^"]+)"`).FindAllStringSubmatch(own, -1) {
		assert.Contains(t, own, `id="`+link[1]+`"`)
	}
	assert.NotContains(t, own, "ZgotmplZ", "html/template writes it in place of unsafe text")
}

// The page agrees with the terminal. Its first screen has a verdict, and then come the workloads.
func TestPageShowsTheReport(t *testing.T) {
	d := reporttest.Run(t)
	for i := range d.Workloads {
		d.Workloads[i].Why = "why there is " + d.Workloads[i].Name
	}
	page := textOf(t, d)
	_, rest, found := strings.Cut(page, `id="verdict"`)
	require.True(t, found)
	first, rest, found := strings.Cut(rest, `id="overview"`)
	require.True(t, found)
	overview, _, _ := strings.Cut(rest, "</section>")
	beside, _ := report.Beside(d)
	require.NotEmpty(t, beside.Rows)
	for _, row := range beside.Rows {
		assert.Contains(t, first, ">"+row.Cells[1]+"</td>")
	}
	for _, line := range append(report.VerdictOf(d), report.Shortfalls(d)...) {
		assert.Contains(t, first, line.Text)
	}
	for _, row := range report.GoalTable(d).Rows {
		for _, cell := range row.Cells {
			assert.Contains(t, first, ">"+cell+"<")
		}
	}
	for _, w := range d.Workloads {
		assert.Contains(t, overview, "Why there is "+w.Name+".")
		for _, r := range w.Results {
			if r.Audit != nil {
				assert.Contains(t, page, report.AuditLine(*r.Audit))
			}
		}
		for _, table := range report.Tables(w) {
			for _, row := range table.Rows {
				for _, cell := range row.Cells[1:] {
					assert.Contains(t, page, ">"+cell+"</td>")
				}
			}
		}
	}
	for _, want := range []string{d.Machine.CPU, d.Machine.Go, d.Machine.Commit, "x floor   ns/op as a multiple", "Method: keys are prepared"} {
		assert.Contains(t, page, want)
	}
}

const evil = `</script><script>alert(1)</script><img src=x onerror=alert(2)>"'&`

// hostile returns a run with names that could break a page.
func hostile() report.Document {
	d := reporttest.Made([]float64{1, 2}, []float64{3, 4})
	w := &d.Workloads[0]
	w.Name, w.About, d.Machine.CPU, d.Machine.Commit = evil, evil, evil, evil
	r := &w.Results[0]
	r.Name = evil
	r.OpsPerSecond, r.NsPerOp = bench.Spread{Median: 5, Min: 4, Max: 6}, bench.Spread{Median: 5, Min: 4, Max: 6}
	r.Latency = &bench.Latency{Calls: 1, P50: 100, P90: 200, P99: 300, P999: 400, Worst: 500}
	return d
}

func TestPageOfAlmostNothing(t *testing.T) {
	page := pageOf(t, report.Document{Schema: report.Schema, Report: bench.Report{Interrupted: true}})
	assert.Contains(t, page, "Interrupted:")
}

func TestOnlyABrokenPromiseOfRalIsTheAlarm(t *testing.T) {
	for contender, exact := range map[string]bool{"Ral": true, "Ral Queued": false, "a": true} {
		d := reporttest.Made(nil, []float64{1, 2})
		r := &d.Workloads[0].Results[0]
		r.Name, r.Exact = contender, exact
		r.Audit = &bench.Audit{Calls: 10, Admitted: 9, Allowed: 5, BucketAllowed: 5, Over: 4, Binds: true}
		page := withoutScripts(pageOf(t, d))
		for text, want := range map[string]bool{
			`<p class="warning"><strong>Ral broke its promise:`:                      contender == "Ral",
			`<li class="bad"><strong>Promises:</strong> BROKEN by Ral`:               contender == "Ral",
			"Above their limits, by limiters that are not exact by their own design": !exact,
			"1 audit of peers found more admitted than the promise":                  contender == "a",
			"<details open>": exact,
		} {
			assert.Equal(t, want, strings.Contains(page, text), "%s: %s", contender, text)
		}
	}
}

func TestPageSaysHowToRepeatTheRun(t *testing.T) {
	d := reporttest.Run(t)
	d.Machine.Commit, d.Machine.GOGC = "0123456789ab+changes", "50"
	d.Settings.Args = []string{"-workloads", "zipf, hot-pass", "-cpu=1,2", "-json"}
	assert.Contains(t, textOf(t, d), `tabindex="0">`+"git checkout 0123456789ab\nGOGC=50 go run ./cmd/ralbench -workloads \"zipf, hot-pass\" -cpu=1,2 -json\n")
	d.Machine.Commit, d.Machine.GOGC, d.Settings.Args = report.Unknown, "", nil
	assert.Contains(t, textOf(t, d), `tabindex="0">`+"go run ./cmd/ralbench\n")
	d.Machine.Commit = "v0.1.0"
	assert.Contains(t, textOf(t, d), `tabindex="0">`+"go run github.com/ral-limiter/ral/cmd/ralbench@v0.1.0\n")
}

func TestDisturbedAndMissingRoundsAreSaid(t *testing.T) {
	d := reporttest.Made(nil, []float64{1, 2})
	d.Workloads[0].Rounds = 5
	d.Workloads[0].Results[0].NsPerOp, d.Workloads[0].Results[0].Disturbed = bench.Spread{Median: 1}, 1
	facts := withoutScripts(pageOf(t, d))
	assert.Contains(t, facts, "2 of 5 rounds")
	assert.Contains(t, facts, "Other load DISTURBED 1 of 2 passes. Medians of 2 rounds.")
	d.Workloads[0].Results[0].Rounds = d.Workloads[0].Results[0].Rounds[:1]
	assert.Contains(t, withoutScripts(pageOf(t, d)), "One round.")
}

func TestLicencesStandBesideTheLibraries(t *testing.T) {
	for name, library := range map[string]string{"d3": d3, "plot": plot} {
		assert.FileExists(t, "libraries/"+name+"/LICENSE")
		assert.Contains(t, library[:200], "Copyright")
		assert.NotContains(t, library, "</script")
	}
}

func TestCallsAreShownBesideChoke(t *testing.T) {
	d, calls := reporttest.Run(t), reporttest.Calls()
	d.Workloads = append(d.Workloads, calls)
	_, others, _ := strings.Cut(textOf(t, d), `id="w-`+d.Workloads[0].Name)
	others, section, _ := strings.Cut(others, `id="w-`+calls.Name)
	assert.NotContains(t, others, "x Choke")
	assert.Contains(t, section, ">x Choke<")
	assert.Contains(t, section, ">1.50<")
	assert.NotContains(t, section, report.Mark+"<", "no row is the best")
	peek := slices.IndexFunc(newView(d).Data.Contenders, func(s style) bool { return s.Name == "Ral Peek" })
	assert.Equal(t, report.KindRal, newView(d).Data.Contenders[peek].Kind)
}

func chartOf(t *testing.T, charts []chart, id string) chart {
	t.Helper()
	i := slices.IndexFunc(charts, func(c chart) bool { return c.ID == id })
	require.NotEqual(t, -1, i, "no chart %s", id)
	return charts[i]
}

// One chart of each kind is compared, figure by figure.
func TestChartsShowTheReport(t *testing.T) {
	d := reporttest.Run(t)
	data := newView(d).Data
	w := d.Workloads[7] // hot-pass with 2 CPUs, as many as the machine has
	require.Equal(t, "hot-pass (2 CPUs)", format.Task(w.Name, w.CPU))
	bars, curves := chartOf(t, data.Charts, "hot-pass-throughput"), chartOf(t, data.Charts, "hot-pass-latency")
	require.Len(t, bars.Points, len(w.Results)-1, "all but the yardstick")
	assert.Equal(t, w.Yardstick(bench.YardstickMap).OpsPerSecond.Median, bars.Lines[0].Value)
	for i, r := range w.Results[1:] {
		p := bars.Points[i]
		assert.Equal(t, r.Name, p.Contender)
		assert.Equal(t, r.OpsPerSecond, bench.Spread{Median: p.Value, Min: *p.Min, Max: *p.Max})
	}
	require.Len(t, curves.Points, 5*len(w.Results))
	for i, r := range w.Results {
		for j, want := range []time.Duration{r.Latency.P50, r.Latency.P90, r.Latency.P99, r.Latency.P999, r.Latency.Worst} {
			assert.EqualValues(t, want, curves.Points[5*i+j].Value)
		}
	}
	assert.Len(t, chartOf(t, data.Charts, "hot-pass-scaling").Points, 3*len(w.Results), "with 1, 2 and 4 CPUs")
	memory := d.Workloads[len(d.Workloads)-1]
	key := chartOf(t, data.Charts, "memory-key")
	require.Len(t, key.Points, len(memory.Results)-1)
	assert.Equal(t, memory.Results[1].Memory.BytesPerKey, key.Points[0].Value)
	assert.Nil(t, key.Points[0].Min, "measured once")
	for _, id := range []string{"memory-gc", "memory-full", "memory-idle", "growth-known"} {
		chartOf(t, data.Charts, id)
	}
	assert.Len(t, chartOf(t, data.Charts, "overview").Points, 7*4, "all workloads but memory, all contenders but the yardstick")
}

func TestPageOfFleetMode(t *testing.T) {
	d := reporttest.Fleet(t)
	p := newView(d)
	seen := map[string]bool{}
	for _, c := range slices.Concat(p.Data.Charts[1:], newView(reporttest.Run(t)).Data.Charts) {
		assert.False(t, seen[c.ID], "%s: twice", c.ID)
		seen[c.ID] = true
		for _, point := range c.Points {
			assert.Positive(t, point.Value, "%s: %+v", c.ID, point)
		}
	}
	for _, id := range []string{"fleet-hot-redis", "fleet-keys-redis", "fleet-memory-key", "fleet-share-even-1000-share", "fleet-share-shifting-50-share", "fleet-some-throughput", "fleet-some-latency"} {
		assert.True(t, seen[id], id)
	}

	all := chartOf(t, p.Data.Charts, "overview")
	assert.Len(t, all.Points, 4*4, "in all workloads of speed, all but redis_rate, which is the line")
	assert.Contains(t, summary(t, all), "fleet-some, Ral fleet leased: ")
	share := chartOf(t, p.Data.Charts, "fleet-share-even-1000-share")
	require.Len(t, share.Points, 2)
	assert.Equal(t, 0.95, share.Lines[0].Value)
	measured := d.Workloads[5].Results
	assert.Equal(t, measured[0].Share, share.Points[0].Value)
	assert.Contains(t, summary(t, share), "goal of Ral fleet leased: 95.0%.")
	assert.Contains(t, summary(t, share), measured[1].Name+": "+format.Percent(measured[1].Share))
	assert.GreaterOrEqual(t, report.Audits(d).Clean, 2*6, "each share is audited")

	page := textOf(t, d)
	assert.Contains(t, page, "Fleet mode on Redis "+d.Redis)
	assert.NotContains(t, textOf(t, reporttest.Made(nil, []float64{1})), "Fleet mode", "not in other runs")
	assert.Contains(t, textOf(t, reporttest.Tables()), "Ral broke its promise")
}
