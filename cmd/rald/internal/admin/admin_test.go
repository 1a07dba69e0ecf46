package admin

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	descriptor "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/cmd/rald/internal/checkserver"
	"github.com/ral-limiter/ral/cmd/rald/internal/configfile"
	"github.com/ral-limiter/ral/cmd/rald/internal/configured"
	"github.com/ral-limiter/ral/cmd/rald/internal/envoyserver"
	"github.com/ral-limiter/ral/cmd/rald/internal/families"
	"github.com/ral-limiter/ral/cmd/rald/internal/limitfile"
	"github.com/ral-limiter/ral/cmd/rald/internal/redisserver"
	"github.com/ral-limiter/ral/cmd/rald/internal/rules"
	"github.com/ral-limiter/ral/internal/adapter/pagejson"
	"github.com/ral-limiter/ral/policy"
)

const token = "0123456789abcdef"

var anna = map[string]string{"anna": token}

// setLimits puts a line of limits.yaml in force.
func setLimits(t *testing.T, c Config, line string) {
	t.Helper()
	file, err := limitfile.Parse("limits.yaml", []byte("limits:\n  "+line+"\n"))
	require.NoError(t, err)
	require.NoError(t, c.Limits.Set(t.Context(), file, nil))
}

// withLimits returns a complete Config, without listeners.
func withLimits(t *testing.T) Config {
	open := func(name string) *families.Families {
		keep, err := families.New(families.Config{Name: name})
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, keep.Close()) })
		return keep
	}
	c := Config{Keys: open("rald"), EnvoyKeys: open("rald envoy"), Log: slog.New(slog.DiscardHandler)}
	named, err := configured.New(configured.Config{Families: c.Keys})
	require.NoError(t, err)
	c.Limits = named
	setLimits(t, c, "login: at most 5/10m")
	c.Redis, err = redisserver.New(redisserver.Config{Families: c.Keys, Limits: named, Log: c.Log})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Redis.Shutdown(context.Background())) })
	set, err := rules.Parse([]rules.Source{{Name: "shop.yaml", Text: []byte(`domain: shop
descriptors:
  - key: user
    rate_limit: {unit: year, requests_per_unit: 1, candidate: "window 2/365d"}
  - key: path
    rate_limit: {unit: year, requests_per_unit: 1}
`)}}, rules.Options{})
	require.NoError(t, err)
	c.Envoy, err = envoyserver.New(envoyserver.Config{Families: c.EnvoyKeys}, set)
	require.NoError(t, err)
	checks, err := checkserver.Parse("check.yaml", []byte("proxy: caddy\nrules: [{match: /free, unlimited: true}]\n"), nil)
	require.NoError(t, err)
	c.Check, err = checkserver.New(checkserver.Config{Families: c.Keys, Limits: named, Log: c.Log}, checks)
	require.NoError(t, err)
	c.Reloads = map[string]*configfile.Reads{"rules": {}}
	c.Reloads["rules"].Good.Add(1)
	return c
}

func serve(t *testing.T, c Config) string {
	h, err := New(c)
	require.NoError(t, err)
	s := httptest.NewServer(h)
	t.Cleanup(func() {
		s.Close()
		assert.NoError(t, h.Close())
	})
	return s.URL
}

// request sends a request with pairs of a name and a value as header fields.
func request(t *testing.T, method, url string, body []byte, fields ...string) (status int, answer string) {
	t.Helper()
	r, err := http.NewRequestWithContext(context.Background(), method, url, bytes.NewReader(body))
	require.NoError(t, err)
	for ; len(fields) > 0; fields = fields[2:] {
		if fields[0] == "Host" {
			r.Host = fields[1]
		}
		r.Header.Set(fields[0], fields[1])
	}
	a, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	require.NoError(t, err)
	return a.StatusCode, string(text)
}

func get(t *testing.T, url string, fields ...string) (int, string) {
	t.Helper()
	return request(t, http.MethodGet, url, nil, fields...)
}

func TestEachPageIsServed(t *testing.T) {
	url := serve(t, withLimits(t))
	for path, want := range map[string]string{
		"/": "/debug/ral/", "/metrics": "rald_resp_connections 0", "/debug/ral/": "<title>", "/healthz": "ok",
		"/debug/pprof/": "goroutine", "/debug/pprof/goroutine?debug=1": "goroutine profile", "/debug/pprof/cmdline": os.Args[0],
	} {
		status, text := get(t, url+path)
		assert.Equal(t, http.StatusOK, status, path)
		assert.Contains(t, text, want, path)
	}
	status, _ := get(t, url+"/nothing")
	assert.Equal(t, http.StatusNotFound, status)
}

// Even if its name resolves to loopback.
//
// Promise: Other sites' pages learn nothing.
func TestOtherSitesAreRefused(t *testing.T) {
	url := serve(t, withLimits(t))
	for _, path := range []string{"/", "/metrics", "/debug/ral/limits", "/debug/pprof/goroutine"} {
		for value, c := range map[string]struct {
			name string
			want int
		}{"evil.example:7381": {"Host", http.StatusForbidden}, "rald.localhost.": {"Host", http.StatusOK}, "cross-site": {"Sec-Fetch-Site", http.StatusForbidden}} {
			status, _ := get(t, url+path, c.name, value)
			assert.Equal(t, c.want, status, "%s %s", path, value)
		}
	}
}

// Only /healthz is answered without a token.
//
// Promise: Remote requests, except `/healthz`, need TLS and a token.
func TestRemoteRequestsNeedAToken(t *testing.T) {
	_, err := New(Config{})
	require.ErrorContains(t, err, "Redis, Keys or Limits is nil")
	c := withLimits(t)
	c.Guarded = true
	_, err = New(c)
	require.ErrorContains(t, err, "there are no tokens")
	c.Tokens = map[string]string{"anna": "short"}
	_, err = New(c)
	require.ErrorContains(t, err, `Tokens["anna"]`)
	c.Tokens = anna
	url := serve(t, c)
	basic := "Basic " + base64.StdEncoding.EncodeToString([]byte("anna:"+token))
	for _, path := range []string{"/", "/metrics", "/debug/ral/", "/debug/ral/limits", "/debug/pprof/goroutine", "/nothing"} {
		for authorization, refused := range map[string]bool{
			"": true, "Bearer " + token + "x": true, "Bearer": true, token: true, "Basic x": true, "bearer " + token: false, basic: false,
		} {
			status, _ := get(t, url+path, "Authorization", authorization)
			assert.Equal(t, refused, status == http.StatusUnauthorized, "%s %s", path, authorization)
		}
	}
	status, _ := get(t, url+"/healthz")
	assert.Equal(t, http.StatusOK, status)
}

func TestHealthFailsWhenDrainingOrClosed(t *testing.T) {
	c := withLimits(t)
	draining := false
	c.Draining = func() bool { return draining }
	url := serve(t, c) + "/healthz"
	status, _ := get(t, url)
	assert.Equal(t, http.StatusOK, status)
	draining = true
	status, text := get(t, url)
	assert.Equal(t, http.StatusServiceUnavailable, status)
	assert.Equal(t, "draining\n", text)
	draining = false
	require.NoError(t, c.EnvoyKeys.Close())
	status, text = get(t, url)
	assert.Equal(t, http.StatusServiceUnavailable, status)
	assert.Contains(t, text, "rald envoy window")
}

func shown(t *testing.T, url string) (names []string) {
	status, text := get(t, url+"/debug/ral/limits")
	require.Equal(t, http.StatusOK, status, text)
	var all pagejson.Overview
	require.NoError(t, json.Unmarshal([]byte(text), &all))
	for _, l := range all.Limits {
		names = append(names, l.Name)
	}
	return names
}

// New engines and configured limits appear.
func TestPageFollowsEnginesAndLimits(t *testing.T) {
	c := withLimits(t)
	c.Envoy, c.EnvoyKeys = nil, nil
	url := serve(t, c)
	assert.Equal(t, []string{"login", "rald at most/10m"}, shown(t, url))
	_, err := c.Keys.Of(policy.Must(policy.Parse("funnel 5, 1/s")))
	require.NoError(t, err)
	assert.Equal(t, []string{"login", "rald at most/10m", "rald funnel"}, shown(t, url))
	_, text := get(t, url+"/metrics")
	assert.True(t, has(text, `ral_keys{limit="rald funnel"} 0`))
	setLimits(t, c, "api: funnel 6, 1/s")
	assert.Equal(t, []string{"api", "rald at most/10m", "rald funnel"}, shown(t, url))
}

// Promise: Warnings of a limit are in the metrics, and on the page once its file says that it warns.
func TestWarningsAreShown(t *testing.T) {
	c := withLimits(t)
	url := serve(t, c)
	figures := func() map[string]any {
		_, text := get(t, url+"/debug/ral/limits")
		var page pagejson.Overview
		require.NoError(t, json.Unmarshal([]byte(text), &page))
		i := slices.IndexFunc(page.Limits, func(l pagejson.LimitSummary) bool { return l.Name == "login" })
		return page.Limits[i].Figures
	}
	require.Empty(t, figures())
	setLimits(t, c, "login: {limit: at most 5/10m, warn-at: 0.5, candidate: at most 2/10m, shadow: yes}")
	for range 7 {
		_, err := c.Limits.Admit(t.Context(), configured.Prefix("login")+"ann", 1)
		require.NoError(t, err)
	}
	require.Equal(t, map[string]any{"Warnings": 1.0, "Passed": 2.0, "WouldRefuse": 3.0, "WouldAdmit": 0.0}, figures())
	_, text := get(t, url+"/metrics")
	require.True(t, has(text, `ral_warnings_total{limit="login"} 1`), text)
	require.True(t, has(text, `rald_shadow_passes_total{limit="login"} 2`), text)
	require.True(t, has(text, `ral_trial_calls_total{limit="login",result="would_refuse"} 3`), text)
	require.True(t, has(text, `ral_warnings_total{limit="rald at most/10m"} 0`), text)
}

// change changes a key, and returns the explanation.
func change(t *testing.T, url string, body string, want int) (x pagejson.Explanation) {
	t.Helper()
	status, text := request(t, http.MethodPost, url+"/debug/ral/change", []byte(body),
		"Authorization", "Bearer "+token, "Content-Type", "application/json")
	require.Equal(t, want, status, text)
	if status == http.StatusOK {
		require.NoError(t, json.Unmarshal([]byte(text), &x))
	}
	return x
}

// By the name of a configured limit, and by its engine.
func TestOperatorChangesKeys(t *testing.T) {
	c := withLimits(t)
	change(t, serve(t, c), `{"limit": "login", "key": "ann", "do": "reset"}`, http.StatusForbidden)
	c.Tokens, c.ShowKeys = anna, true
	url := serve(t, c)
	limit := policy.Must(policy.Parse("at most 5/10m"))
	family, err := c.Keys.Of(limit)
	require.NoError(t, err)
	key := configured.Prefix("login") + "ann"
	families.EngineOf(family).TakeWith(limit, key, 2)

	x := change(t, url, `{"limit": "login", "key": "ann", "do": "charge", "units": 2}`, http.StatusOK)
	assert.EqualValues(t, 1, x.Parts[0].Remaining)
	x = change(t, url, `{"limit": "login", "key": "ann", "do": "charge", "units": -1}`, http.StatusOK)
	assert.EqualValues(t, 2, x.Parts[0].Remaining)
	assert.EqualValues(t, 2, families.EngineOf(family).TakeWith(limit, key, 0).Remaining)
	x = change(t, url, `{"limit": "login", "key": "ann", "do": "block", "for": "1h"}`, http.StatusOK)
	assert.InDelta(t, 3600, x.Blocked, 60)
	assert.False(t, families.EngineOf(family).TakeWith(limit, key, 1).Allowed)
	change(t, url, `{"limit": "login", "key": "ann", "do": "lift"}`, http.StatusOK)
	x = change(t, url, `{"limit": "login", "key": "ann", "do": "reset"}`, http.StatusOK)
	assert.EqualValues(t, 5, x.Parts[0].Remaining)

	families.EngineOf(family).TakeWith(limit, key, 5)
	_, text := get(t, url+"/debug/ral/keys?by=owed&limit=rald+at+most%2F10m")
	// The walk goes on.
	for strings.Contains(text, `"pending":true`) {
		time.Sleep(10 * time.Millisecond) // wall: between two looks for the event
		_, text = get(t, url+"/debug/ral/keys?by=owed&limit=rald+at+most%2F10m")
	}
	assert.Contains(t, text, `"login \"ann\""`)
	change(t, url, `{"limit": "rald at most/10m", "key": "login \"ann\"", "do": "block", "for": "1h"}`, http.StatusOK)
	assert.NotZero(t, families.EngineOf(family).Blocked(key))
	change(t, url, `{"limit": "rald at most/10m", "key": "login \"ann", "do": "reset"}`, http.StatusBadRequest)
}

func hit(t *testing.T, c Config, key string) {
	_, err := c.Envoy.ShouldRateLimit(context.Background(), &pb.RateLimitRequest{
		Domain: "shop",
		Descriptors: []*descriptor.RateLimitDescriptor{{
			Entries: []*descriptor.RateLimitDescriptor_Entry{{Key: key, Value: "x"}},
		}},
	})
	require.NoError(t, err)
}

func has(text, line string) bool { return strings.Contains("\n"+text, "\n"+line+"\n") }

var (
	documented = regexp.MustCompile("(?m)^\\| `(rald_\\w+)` \\| (\\w+) \\| (.*?) ?\\| (.*) \\|$")
	exposed    = regexp.MustCompile(`(?m)^# HELP (rald_\w+) (.*)\n# TYPE \w+ (\w+)\n(.*)$`)
	label      = regexp.MustCompile(`(\w+)="`)
)

// docs/serving.md has them: name, type, labels and help.
func TestMetricsOfTheDoors(t *testing.T) {
	c := withLimits(t)
	setLimits(t, c, "login: {limit: at most 5/10m, shadow: yes}\n  upstream: {limit: 'funnel 9, 1/s', share gold: 'funnel 2, 1/m'}")
	defer func() { require.NoError(t, c.Limits.Close()) }()
	for range 3 {
		_, err := c.Limits.Admit(t.Context(), configured.Prefix("upstream")+"gold", 2)
		require.NoError(t, err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() { _ = c.Redis.Serve(l) }()
	client, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer client.Close()
	_, err = io.WriteString(client, "PING\r\nCL.THROTTLE k 1 1 no\r\nPING\r\nRAL.RESERVE window_9/h k 4 60000 spend id\r\nRAL.COMMIT window_9/h k id 4\r\nQUIT\r\n")
	require.NoError(t, err)
	_, err = io.ReadAll(client)
	require.NoError(t, err)
	hit(t, c, "user")
	hit(t, c, "user")
	hit(t, c, "path")

	// The request comes from no proxy.
	c.Check.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/check", nil))
	_, text := get(t, serve(t, c)+"/metrics")
	for _, line := range []string{
		"rald_check_rules 1", `rald_check_requests_total{result="undecided"} 1`, `rald_check_requests_total{result="passed"} 0`,
		`rald_check_requests_total{result="refused"} 0`, `rald_check_requests_total{result="unlimited"} 0`, "rald_check_shadow_refusals_total 0",
		"rald_resp_accepted_connections_total 1", "rald_resp_refused_connections_total 0", "rald_resp_garbled_connections_total 0",
		`rald_resp_commands_total{command="ping",result="ok"} 2`, `rald_resp_commands_total{command="ping",result="error"} 0`,
		`rald_resp_commands_total{command="cl.throttle",result="error"} 1`, `rald_resp_commands_total{command="unknown",result="error"} 0`,
		`rald_reservations{state="held"} 0`, `rald_reservations{state="ended"} 1`, `rald_reservation_changes_total{state="held"} 1`,
		`rald_reservation_changes_total{state="committed"} 1`, `rald_reservation_changes_total{state="unknown"} 0`,
		"rald_forgotten_reservations_total 0", "rald_refused_reservations_total 0",
		"rald_limits 2", `rald_shadow_passes_total{limit="login"} 0`, `rald_share_calls_total{limit="upstream",result="guaranteed"} 1`,
		`rald_share_calls_total{limit="upstream",result="borrowed"} 2`, `rald_reloads_total{of="rules",result="good"} 1`, `rald_reload_failing{of="rules"} 0`,
		"rald_envoy_rules 2",
		`rald_envoy_descriptors_total{result="passed",rule="shop.user"} 1`, `rald_envoy_descriptors_total{result="refused",rule="shop.user"} 1`,
		`rald_envoy_descriptors_total{result="passed",rule="shop.path"} 1`,
		`rald_envoy_candidate_descriptors_total{result="would_pass",rule="shop.user"} 1`, `rald_envoy_returned_hits_total{rule="shop.user"} 0`,
		`rald_envoy_candidate_descriptors_total{result="would_refuse",rule="shop.user"} 0`,
		`ral_healthy{limit="rald envoy window/365d aligned"} 1`,
	} {
		assert.True(t, has(text, line), line)
	}
	assert.NotContains(t, text, `rald_envoy_candidate_descriptors_total{result="would_pass",rule="shop.path"}`)

	document, err := os.ReadFile("../../../../docs/serving.md")
	require.NoError(t, err)
	want, got := map[string][]string{}, map[string][]string{}
	for _, row := range documented.FindAllStringSubmatch(string(document), -1) {
		want[row[1]] = []string{row[2], row[3], row[4]}
	}
	for _, m := range exposed.FindAllStringSubmatch(text, -1) {
		var labels []string
		for _, l := range label.FindAllStringSubmatch(m[4], -1) {
			labels = append(labels, "`"+l[1]+"`")
		}
		got[m[1]] = []string{m[3], strings.Join(labels, ", "), m[2]}
	}
	assert.Equal(t, want, got)
}

// Promise: Metrics have a bounded number of labels, for any rules with any paths.
func TestRuleLabelsAreBounded(t *testing.T) {
	c := withLimits(t)
	const line = "  - {key: %s, rate_limit: {unit: hour, requests_per_unit: 1}}\n"
	text := "domain: many\ndescriptors:\n" + fmt.Sprintf(line, strings.Repeat("long", maxRulePath))
	for i := range maxRules + 5 {
		text += fmt.Sprintf(line, "k"+strconv.Itoa(i))
	}
	set, err := rules.Parse([]rules.Source{{Name: "many.yaml", Text: []byte(text)}}, rules.Options{})
	require.NoError(t, err)
	c.Envoy, err = envoyserver.New(envoyserver.Config{Families: c.EnvoyKeys}, set)
	require.NoError(t, err)
	shown, all := countRules(c.Envoy)
	assert.Equal(t, maxRules+6, shown)
	assert.Len(t, all, maxRules+1)
	assert.Contains(t, all, otherRules)
	for path := range all {
		assert.LessOrEqual(t, len(path), maxRulePath)
	}
}
