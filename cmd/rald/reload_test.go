package main

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/cmd/rald/envoyserver"
	"github.com/ral-limiter/ral/cmd/rald/families"
	"github.com/ral-limiter/ral/cmd/rald/internal/checkserver"
	"github.com/ral-limiter/ral/cmd/rald/internal/configdir"
)

// reloaderOf opens the doors of a directory without listeners. checks makes a call of the HTTP
// check and returns the remaining units, envoy the requests of its rule.
func reloaderOf(t *testing.T, dir string) (r *reloader, checks func() string, envoy func() int) {
	t.Helper()
	r = &reloader{dirs: configdir.Under(dir, ""), log: slog.New(slog.DiscardHandler)}
	c, err := r.dirs.Read()
	require.NoError(t, err)
	keep, counts := openFamilies(t), openFamilies(t)
	r.limits, err = limitsOf("", keep, c.Limits, r.log)
	require.NoError(t, err)
	r.check, err = checkserver.New(checkserver.Config{Families: keep, Limits: r.limits, Log: r.log}, c.Checks)
	require.NoError(t, err)
	r.envoy, err = envoyserver.New(envoyserver.Config{Families: counts}, c.Rules)
	require.NoError(t, err)
	checks = func() string {
		request := httptest.NewRequest(http.MethodGet, "http://127.0.0.1/check", nil)
		request.RemoteAddr = "127.0.0.1:1"
		for fields := asTraefik("/"); len(fields) > 0; fields = fields[2:] {
			request.Header.Set(fields[0], fields[1])
		}
		w := httptest.NewRecorder()
		r.check.ServeHTTP(w, request)
		_, remaining, _ := strings.Cut(w.Header().Get("RateLimit"), "r=")
		remaining, _, _ = strings.Cut(remaining, ";")
		return remaining
	}
	envoy = func() (requests int) {
		for rule := range r.envoy.Counts() {
			requests += int(rule.Requests)
		}
		return requests
	}
	return r, checks, envoy
}

func openFamilies(t *testing.T) *families.Families {
	t.Helper()
	keep, err := families.New(families.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, keep.Close()) })
	return keep
}

// All doors change together or not at all.
func TestReloadOfOneDirectory(t *testing.T) {
	limit := func(n string) string { return "limits:\n  api: window " + n + "/365d\n" }
	dir := directory(t, "limits.yaml", limit("10"), "check.yaml", checkFile, "envoy/shop.yaml", rulesOf(2))
	r, checks, envoy := reloaderOf(t, dir)
	for i, step := range []struct {
		files []string // with their new texts, "" to remove one
		after []int    // the limit, and the requests of the rule
		check string
	}{
		{nil, []int{10, 2}, "9"},
		{[]string{"limits.yaml", limit("20"), "envoy/shop.yaml", "domain: [\n"}, []int{10, 2}, "8"},
		{[]string{"envoy/shop.yaml", rulesOf(3)}, []int{20, 3}, "17"},
		{[]string{"limits.yaml", limit("30"), "envoy/shop.yaml", rulesOf(4), "check.yaml", ""}, []int{20, 3}, "16"}, // an open door keeps its rules
		{[]string{"check.yaml", checkFile}, []int{30, 4}, "25"},
	} {
		for files := step.files; len(files) > 0; files = files[2:] {
			if files[1] == "" {
				require.NoError(t, os.Remove(filepath.Join(dir, files[0])))
			} else {
				write(t, dir, files[0], files[1])
			}
		}
		if i > 0 {
			r.reload()
		}
		assert.Equal(t, step.after, []int{int(r.limits.All()["api"].Limit()), envoy()}, i)
		assert.Equal(t, step.check, checks(), i)
		assert.Equal(t, i == 1 || i == 3, r.reads().Failing, i)
	}
	assert.Equal(t, []uint64{2, 2}, []uint64{r.reads().Good, r.reads().Bad})

	r.check = nil
	write(t, dir, "limits.yaml", limit("40"))
	r.reload()
	assert.EqualValues(t, 40, r.limits.All()["api"].Limit(), "a file of a door that is not open is told of")
}

// They are no longer put in force. A start that reads for ever can be ended, too.
func TestEndDoesNotWaitForFiles(t *testing.T) {
	dir := directory(t, "check.yaml", "proxy: caddy\nrules: []\n", "envoy/shop.yaml", rulesOf(2))
	r, _, _ := reloaderOf(t, dir)
	write(t, dir, "limits.yaml", limitsFile)
	c, err := r.dirs.Read()
	require.NoError(t, err)
	r.end()
	r.put(c, nil)
	assert.Empty(t, r.limits.All())

	ctx, cancel := context.WithCancel(t.Context())
	blocked := make(chan struct{})
	defer close(blocked)
	_, err = readUntil(ctx, func() (*configdir.Config, error) {
		cancel()
		<-blocked
		return nil, nil
	})
	assert.ErrorIs(t, err, context.Canceled)
}
