package checkserver

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/ral-limiter/ral/cmd/rald/internal/configured"
	"github.com/ral-limiter/ral/cmd/rald/internal/families"
	"github.com/ral-limiter/ral/cmd/rald/internal/limitfile"
	"github.com/ral-limiter/ral/policy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// limitNamed has the limits of limits.yaml in tests. None drains during a test.
func limitNamed(name string) (policy.Policy, bool) {
	text, ok := map[string]string{
		"one": "funnel 1, 1/365d", "two": "funnel 2, 1/365d", "five": "funnel 5, 1/365d", "window": "window 2/365d",
	}[name]
	if !ok {
		return nil, false
	}
	return policy.Must(policy.Parse(text)), true
}

// opened is a door with its log.
type opened struct {
	*Door
	families *families.Families
	log      *bytes.Buffer
}

func open(t *testing.T, text string) opened {
	t.Helper()
	in, err := families.New(families.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, in.Close()) })
	d, err := openIn(in, parsed(t, text))
	require.NoError(t, err)
	return d
}

func openIn(in *families.Families, rules *Rules) (d opened, err error) {
	d = opened{families: in, log: &bytes.Buffer{}}
	limits, err := configured.New(configured.Config{Families: in})
	if err != nil {
		return d, err
	}
	var file limitfile.File
	rules.AddTo(&file)
	if err := limits.Set(context.Background(), &file, nil); err != nil {
		return d, err
	}
	d.Door, err = New(Config{Families: in, Limits: limits, Log: slog.New(slog.NewTextHandler(d.log, nil))}, rules)
	return d, err
}

func (d opened) set(rules *Rules) error {
	commit, err := d.Prepare(rules)
	if err != nil {
		return err
	}
	var file limitfile.File
	rules.AddTo(&file)
	return d.config.Limits.Set(context.Background(), &file, commit)
}

func parsed(t *testing.T, text string) *Rules {
	t.Helper()
	rules, err := Parse("check.yaml", []byte(text), limitNamed)
	require.NoError(t, err)
	return rules
}

// ask asks like Caddy and Traefik. A field without a value is removed.
func (d opened) ask(method, uri string, fields ...string) *httptest.ResponseRecorder {
	return d.do(asking(append([]string{"X-Forwarded-Method", method, "X-Forwarded-Uri", uri, "X-Forwarded-For", "192.0.2.1", "X-Forwarded-Host", "example.org"}, fields...)...))
}

func (d opened) asNginx(method, uri string, fields ...string) *httptest.ResponseRecorder {
	return d.do(asking(append([]string{"X-Original-Method", method, "X-Original-Uri", uri, "X-Real-Ip", "192.0.2.1", "X-Original-Host", "example.org"}, fields...)...))
}

// asking returns a check of a proxy on this machine, with pairs of a name and a value.
func asking(fields ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1:7380/check", nil)
	r.RemoteAddr = "127.0.0.1:4711"
	for ; len(fields) > 0; fields = fields[2:] {
		r.Header.Set(fields[0], fields[1])
		if fields[1] == "" {
			r.Header.Del(fields[0])
		}
	}
	return r
}

// asked is a check of a GET of /.
func asked(more ...string) *http.Request {
	return asking(append([]string{"X-Forwarded-Method", "GET", "X-Forwarded-Uri", "/", "X-Forwarded-For", "192.0.2.1"}, more...)...)
}

func (d opened) do(r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	d.ServeHTTP(w, r)
	return w
}

// passes returns how many of 10 requests pass.
func (d opened) passes(t *testing.T, method, uri string, fields ...string) (n int) {
	t.Helper()
	for range 10 {
		if d.ask(method, uri, fields...).Code == http.StatusNoContent {
			n++
		}
	}
	return n
}
