package scrape

import (
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/ral-limiter/ral/internal/testkit/metricspage"
)

const (
	rulesFile     = "../../observe/metrics/alerts/ral.rules.yml"
	rulesTests    = "../../observe/metrics/alerts/ral.test.yml"
	dashboardFile = "../../observe/metrics/grafana/ral.json"
)

type alert struct {
	Alert, Expr         string
	Labels, Annotations map[string]string
}

func alerts(t *testing.T) (all []alert) {
	text, err := os.ReadFile(rulesFile)
	require.NoError(t, err)
	var file struct{ Groups []struct{ Rules []alert } }
	require.NoError(t, yaml.Unmarshal(text, &file))
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	require.NotEmpty(t, all)
	return all
}

// comparison ends the expression of each alert.
var comparison = regexp.MustCompile(` (>|==) [0-9.]+$`)

type panel struct {
	Title, Type, Description string
	Targets                  []struct{ Expr string }
}

// Variables of the dashboard, as Grafana fills them in.
var variables = strings.NewReplacer("$__rate_interval", "1m", "$job", ".*", "$limit", ".*")

func panels(t *testing.T) (all []panel) {
	text, err := os.ReadFile(dashboardFile)
	require.NoError(t, err)
	var dashboard struct{ Panels []panel }
	require.NoError(t, json.Unmarshal(text, &dashboard))
	for _, p := range dashboard.Panels {
		if p.Type != "row" {
			all = append(all, p)
		}
	}
	require.NotEmpty(t, all)
	return all
}

// find returns the path of a program of Debian's package prometheus.
func find(t *testing.T, program string) string {
	path, err := exec.LookPath(program)
	require.NoError(t, err, "install it by tools/need prometheus")
	return path
}

func promtool(t *testing.T, stdin string, args ...string) {
	if testing.Short() {
		t.Skip("runs promtool")
	}
	cmd := exec.Command(find(t, "promtool"), args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	assert.NoError(t, err, "promtool %v: %s", args, out)
	assert.NotContains(t, string(out), "no help text")
}

func TestPromtoolAcceptsMetricsAndRulesByPrometheus(t *testing.T) {
	exposition, err := os.ReadFile("../../observe/metrics/testdata/exposition.txt")
	require.NoError(t, err)
	promtool(t, string(exposition), "check", "metrics")
	promtool(t, "", "check", "rules", rulesFile)
}

// Promise: Alerts fire on their own trouble alone.
func TestAlertsFireOnTheirCausesByPrometheus(t *testing.T) {
	promtool(t, "", "test", "rules", rulesTests)
	tests, err := os.ReadFile(rulesTests)
	require.NoError(t, err)
	for _, a := range alerts(t) {
		assert.Contains(t, string(tests), `alertname="`+a.Alert+`"`)
	}
}

// Promise: Each alert has a heading with instructions.
func TestEachAlertHasARunbook(t *testing.T) {
	text, err := os.ReadFile("../../docs/operating.md")
	require.NoError(t, err)
	headings := map[string]string{}
	for _, section := range regexp.MustCompile(`(?m)^#+ `).Split(string(text), -1) {
		title, body, _ := strings.Cut(section, "\n")
		headings[strings.ToLower(strings.TrimSpace(title))] = body
	}
	for _, a := range alerts(t) {
		assert.Regexp(t, `^Ral[A-Z]\w+$`, a.Alert)
		assert.Regexp(t, `^(critical|warning|info)$`, a.Labels["severity"], a.Alert)
		assert.NotEmpty(t, a.Annotations["summary"], a.Alert)
		assert.NotEmpty(t, a.Annotations["description"], a.Alert)
		anchor, found := strings.CutPrefix(a.Annotations["runbook_url"], "https://github.com/ral-limiter/ral/blob/main/docs/operating.md#")
		assert.True(t, found, a.Alert)
		assert.Equal(t, strings.ToLower(a.Alert), anchor)
		assert.Contains(t, headings[anchor], "**What to do.**", "%s has no heading that says what to do", a.Alert)
		assert.Regexp(t, comparison, a.Expr, a.Alert)
	}
}

// Dashboard and alerts use the contract's metrics; the dashboard shows all that every program has.
func TestDashboardShowsTheContract(t *testing.T) {
	some := regexp.MustCompile(`^ral_(rpc|outgoing)_|^ral_http_shadowed_requests_total$|^ral_used_ratio$`)
	known := map[string]bool{}
	for _, m := range metricspage.Rows(t) {
		known[m.Prometheus()] = true
	}
	shown := map[string]bool{}
	uses := func(of, expr string) {
		for _, m := range regexp.MustCompile(`\bral_\w+`).FindAllString(expr, -1) {
			assert.True(t, known[m], "%s: %s is no metric", of, m)
			shown[m] = true
		}
	}
	for _, p := range panels(t) {
		assert.NotEmpty(t, p.Description, p.Title)
		for _, target := range p.Targets {
			uses(p.Title, target.Expr)
		}
	}
	for m := range known {
		assert.NotEqual(t, some.MatchString(m), shown[m], m)
	}
	for _, a := range alerts(t) {
		uses(a.Alert, a.Expr)
	}
}
