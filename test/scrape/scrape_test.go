package scrape

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/ral-limiter/ral/internal/testkit/child"
	"github.com/ral-limiter/ral/internal/testkit/logbuffer"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/internal/testkit/observetest"
)

// patience is for slow machines.
const patience = 2 * time.Minute

// start starts a program that ends with the test, and returns its output.
func start(t *testing.T, program string, args ...string) io.Reader {
	out, in := io.Pipe()
	cmd := exec.Command(program, args...)
	var problems logbuffer.Buffer
	cmd.Stdout, cmd.Stderr = in, &problems
	p, err := child.Start(cmd)
	require.NoError(t, err)
	go func() {
		<-p.Ended()
		_ = in.Close()
	}()
	t.Cleanup(func() {
		_ = out.Close()
		p.Kill()
		if t.Failed() {
			t.Logf("%s said: %s", program, &problems)
		}
	})
	return out
}

var address = regexp.MustCompile(`http://([^/]+)/`)

// example builds and starts an example, and returns its addresses from its first lines.
func example(t *testing.T, lines int, name string, args ...string) (addrs []string) {
	binary := filepath.Join(t.TempDir(), name)
	out, err := exec.Command("go", "build", "-C", filepath.Join("../../examples", name), "-o", binary, ".").CombinedOutput()
	require.NoError(t, err, string(out))
	output := bufio.NewReader(start(t, binary, append(args, "-addr", "127.0.0.1:0")...))
	for range lines {
		line, err := output.ReadString('\n')
		require.NoError(t, err)
		found := address.FindStringSubmatch(line)
		require.NotNil(t, found, line)
		addrs = append(addrs, found[1])
	}
	go func() { _, _ = io.Copy(io.Discard, output) }()
	return addrs
}

var client = &http.Client{Timeout: patience}

// get decodes the answer to a request, which must be 200.
func get(url string, into any) error {
	answer, err := client.Get(url)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if answer.StatusCode != http.StatusOK || err != nil {
		return fmt.Errorf("%s: %s: %w", answer.Status, text, err)
	}
	return json.Unmarshal(text, into)
}

type server string

// contract serves the metrics that no example has.
func contract(t *testing.T) string {
	text := must.Get(os.ReadFile("../../observe/metrics/testdata/exposition.txt"))
	lines := regexp.MustCompile(`(?m)^ral_(rpc|outgoing|used|http_shadowed)_.*\n`).FindAll(text, -1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(bytes.Join(lines, nil)) }))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// prometheus starts a Prometheus that scrapes the examples and the contract.
func prometheus(t *testing.T, webserver, fleet string) server {
	rules := must.Get(filepath.Abs(rulesFile))
	folder := t.TempDir()
	config := filepath.Join(folder, "prometheus.yml")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, `
global: {scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 1s}
rule_files: [%q]
scrape_configs:
  - {job_name: webserver, static_configs: [{targets: [%q]}]}
  - {job_name: fleet-1, metrics_path: /metrics/1, static_configs: [{targets: [%q]}]}
  - {job_name: fleet-2, metrics_path: /metrics/2, static_configs: [{targets: [%q]}]}
  - {job_name: contract, static_configs: [{targets: [%q]}]}
`, rules, webserver, fleet, fleet, contract(t)), 0o644))
	port := must.Get(child.FreePort())
	addr := fmt.Sprint("127.0.0.1:", port)
	out := start(t, find(t, "prometheus"), "--config.file="+config, "--storage.tsdb.path="+filepath.Join(folder, "data"), "--web.listen-address="+addr)
	go func() { _, _ = io.Copy(io.Discard, out) }()
	return server("http://" + addr)
}

// query returns the error of an expression, or that it has no data now.
func (s server) query(expr string) error {
	var answer struct {
		Data struct {
			Result []struct{ Value [2]any }
		}
	}
	if err := get(string(s)+"/api/v1/query?query="+url.QueryEscape(expr), &answer); err != nil {
		return err
	}
	for _, r := range answer.Data.Result {
		if r.Value[1] != "NaN" {
			return nil
		}
	}
	return fmt.Errorf("%d series, and none with a value", len(answer.Data.Result))
}

// A Prometheus scrapes the examples under load. Expressions of alerts lose their comparison.
//
// Promise: Every dashboard and alert expression returns data under load.
func TestEveryExpressionReturnsDataByPrometheus(t *testing.T) {
	if testing.Short() {
		t.Skip("starts Prometheus")
	}
	webserver := example(t, 2, "web", "-admin", "127.0.0.1:0", "-state", filepath.Join(t.TempDir(), "address.state"))
	s := prometheus(t, webserver[0], example(t, 1, "fleet")[0])
	ended, stop := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(stop); <-ended })
	go func() {
		defer close(ended)
		for {
			if answer, err := client.Get("http://" + webserver[1] + "/hello"); err == nil {
				_ = answer.Body.Close()
			}
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond): // wall: a load, of any rate
			}
		}
	}()

	expressions := map[string]string{}
	for _, p := range panels(t) {
		for _, target := range p.Targets {
			expressions[variables.Replace(target.Expr)] = "panel " + p.Title
		}
	}
	for _, a := range alerts(t) {
		expressions[comparison.ReplaceAllString(a.Expr, "")] = "alert " + a.Alert
	}
	assert.Greater(t, len(expressions), 50)
	for deadline := time.Now().Add(patience); len(expressions) > 0 && !t.Failed(); {
		time.Sleep(200 * time.Millisecond) // wall: between two looks
		for expr, alert := range expressions {
			if err := s.query(expr); err == nil {
				delete(expressions, expr)
			} else if time.Now().After(deadline) {
				t.Errorf("%s: %s: %v", alert, expr, err)
			}
		}
	}
}

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
	text := must.Get(os.ReadFile(rulesFile))
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
	text := must.Get(os.ReadFile(dashboardFile))
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

// promtool accepts the metrics and the rules, too.
//
// Promise: Alerts fire on their own trouble alone.
func TestAlertsFireOnTheirCausesByPrometheus(t *testing.T) {
	exposition := must.Get(os.ReadFile("../../observe/metrics/testdata/exposition.txt"))
	promtool(t, string(exposition), "check", "metrics")
	promtool(t, "", "check", "rules", rulesFile)
	promtool(t, "", "test", "rules", rulesTests)
	tests := must.Get(os.ReadFile(rulesTests))
	for _, a := range alerts(t) {
		assert.Contains(t, string(tests), `alertname="`+a.Alert+`"`)
	}
}

// Promise: Each alert has a heading with instructions.
func TestEachAlertHasARunbook(t *testing.T) {
	text := must.Get(os.ReadFile("../../docs/operating.md"))
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

// Dashboard and alerts use the contract's metrics; the dashboard shows all.
func TestDashboardShowsTheContract(t *testing.T) {
	known := map[string]bool{}
	for _, m := range observetest.MetricRows(t) {
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
		assert.True(t, shown[m], m)
	}
	for _, a := range alerts(t) {
		uses(a.Alert, a.Expr)
	}
}
