package main

import (
	"bytes"
	"encoding/json"
	"html"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/bench"
)

func pageOf(t *testing.T, d document, c *comparison) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, writeHTML(&b, d, c))
	return b.String()
}

// withoutScripts is the page without its libraries, which talk of other pages.
func withoutScripts(page string) string {
	return regexp.MustCompile(`(?s)<script>.*?</script>`).ReplaceAllString(page, "<script></script>")
}

func TestPageNeedsNothingElse(t *testing.T) {
	d, old := fixtures(t)
	c := compare("old.json", old, d)
	page := pageOf(t, d, &c)
	assert.Equal(t, 4, strings.Count(page, "</script>"), "the data, two libraries and the script")
	own := withoutScripts(page)
	assert.NotRegexp(t, `https?://|//[a-z]|\bsrc=|@import|url\(`, own)
	assert.Contains(t, page, `content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"`)
	assert.Less(t, len(page), 1_000_000)
	for _, link := range regexp.MustCompile(`href="#([^"]+)"`).FindAllStringSubmatch(own, -1) {
		assert.Contains(t, own, `id="`+link[1]+`"`)
	}
	assert.NotContains(t, own, "ZgotmplZ", "what html/template writes for what it mistrusts")
}

func TestPageSaysWhatTheTerminalSays(t *testing.T) {
	d, old := fixtures(t)
	c := compare("old.json", old, d)
	page := html.UnescapeString(withoutScripts(pageOf(t, d, &c)))
	for _, w := range d.Workloads {
		var figures []figure
		for _, c := range columns {
			figures = append(figures, c.figure)
		}
		rows := cells(figures, w.Results)
		for i, r := range w.Results {
			if r.Audit != nil {
				assert.Contains(t, page, auditLine(*r.Audit))
			}
			if len(r.Rounds) > 0 {
				for _, cell := range strs(rows[i]) {
					assert.Contains(t, page, "<td>"+cell+"</td>")
				}
			}
		}
	}
	for _, want := range []string{d.Machine.CPU, d.Machine.Go, d.Machine.Commit, c.summary(), rule, "x floor   ns/op as a multiple", "Method: keys are prepared"} {
		assert.Contains(t, page, want)
	}
	for _, change := range c.changes() {
		assert.Contains(t, page, change.Text)
	}
}

const evil = `</script><script>alert(1)</script><img src=x onerror=alert(2)>"'&`

// hostile is a run whose names are not meant for a page.
func hostile() document {
	d := made([]float64{1, 2}, []float64{3, 4})
	w := &d.Workloads[0]
	w.Name, w.About, d.Machine.CPU, d.Machine.Commit = evil, evil, evil, evil
	r := &w.Results[0]
	r.Contender = evil
	r.OpsPerSecond, r.NsPerOp = bench.Spread{Median: 5, Min: 4, Max: 6}, bench.Spread{Median: 5, Min: 4, Max: 6}
	r.Latency = &bench.Latency{Calls: 1, P50: 100, P90: 200, P99: 300, P999: 400, Worst: 500}
	return d
}

func TestPageOfHostileNamesStaysAPage(t *testing.T) {
	d := hostile()
	c := compare(evil, d, d)
	page := pageOf(t, d, &c)
	assert.Equal(t, 4, strings.Count(page, "</script>"))
	assert.NotContains(t, page, "<img")

	var data pageData
	_, text, _ := strings.Cut(page, `<script type="application/json" id="data">`)
	text, _, _ = strings.Cut(text, "</script>")
	require.NoError(t, json.Unmarshal([]byte(text), &data))
	assert.Equal(t, evil, data.Contenders[0].Name)
}

func TestPageOfAlmostNothing(t *testing.T) {
	page := pageOf(t, document{Schema: schema, Report: bench.Report{Interrupted: true}}, nil)
	assert.Contains(t, page, "Interrupted:")
	assert.NotContains(t, withoutScripts(page), "Compared with an earlier run")
}

func TestAuditOfThoseWhoClaimToBeExactIsTheAlarm(t *testing.T) {
	d := made(nil, []float64{1, 2})
	r := &d.Workloads[0].Results[0]
	r.Audit = &bench.Audit{Calls: 10, Admitted: 9, Allowed: 5, Over: 4, Binds: true}
	d.Workloads[0].Results = append(d.Workloads[0].Results, bench.Result{Contender: "other", Exact: true})

	page := withoutScripts(pageOf(t, d, nil))
	assert.NotContains(t, page, "1 audit found")
	assert.Contains(t, page, "do not claim to be exact")

	r = &d.Workloads[0].Results[0]
	r.Exact = true
	page = withoutScripts(pageOf(t, d, nil))
	assert.Contains(t, page, "1 audit found too much admitted by a contender that claims to be exact")
	assert.Contains(t, page, "<details open>")

	// A report from before there were claims.
	d.Workloads[0].Results = d.Workloads[0].Results[:1]
	d.Workloads[0].Results[0].Exact = false
	assert.Contains(t, withoutScripts(pageOf(t, d, nil)), "1 audit found")
}

func TestPageSaysHowToRepeatTheRun(t *testing.T) {
	d, _ := fixtures(t)
	d.Machine.Commit, d.Machine.GOGC = "0123456789ab+changes", "50"
	d.Settings.Budget = time.Minute
	assert.Equal(t, []string{
		"git checkout 0123456789ab",
		"GOGC=50 go run ./cmd/ralbench -workloads hot-pass,hot-refused,uniform,zipf,flood,growth,audit-hot,memory -cpu 1,2,4" +
			" -rounds 6 -duration 20ms -scale 0.01 -budget 1m0s -json new.json -html new.html",
	}, again(d))
	d.Machine.Commit = unknown
	assert.Len(t, again(d), 1)
}

func TestContendersKeepTheirLooks(t *testing.T) {
	d, _ := fixtures(t)
	var looks []contenderStyle
	for _, s := range styles(d.Workloads) {
		s.About = ""
		looks = append(looks, s)
	}
	assert.Equal(t, []contenderStyle{
		{Name: "floor", Kind: "floor"}, {Name: "Ral Exact", Kind: "ral"}, {Name: "Ral Queued", Kind: "ral", Index: 1},
		{Name: "mutex map", Kind: "peer"}, {Name: "sync.Map + mutex", Kind: "peer", Index: 1},
	}, looks)
}

func TestDisturbedAndMissingRoundsAreSaid(t *testing.T) {
	d := made(nil, []float64{1, 2})
	d.Workloads[0].Rounds = 5
	d.Workloads[0].Results[0].Disturbed = 1
	facts := tablesOf(d.Workloads[0])[0].Facts
	assert.Contains(t, facts, "medians of 2 rounds, of 5 that there should be.")
	assert.Contains(t, facts, "Ral Exact: 1 round disturbed")
}

func TestLicencesStandBesideTheLibraries(t *testing.T) {
	for name, library := range map[string]string{"d3": d3, "plot": plot} {
		assert.FileExists(t, "page/vendor/"+name+"/LICENSE")
		assert.Contains(t, library[:200], "Copyright")
		assert.NotContains(t, library, "</script")
	}
}
