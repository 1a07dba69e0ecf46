package main

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/cmd/rald/internal/checkserver"
	"github.com/ral-limiter/ral/cmd/rald/internal/configdir"
	"github.com/ral-limiter/ral/cmd/rald/internal/envoyserver"
	"github.com/ral-limiter/ral/cmd/rald/internal/families"
)

// reloaderOf opens the doors of a directory without listeners. figures returns the limit api, the
// requests of Envoy's rule, and the number of rules of the HTTP check.
func reloaderOf(t *testing.T, dir string) (r *reloader, figures func() []int) {
	t.Helper()
	r = &reloader{dirs: configdir.Under(dir, ""), log: slog.New(slog.DiscardHandler)}
	c, err := r.dirs.Read()
	require.NoError(t, err)
	keep, counts := openFamilies(t), openFamilies(t)
	r.inForce = c
	r.limits, err = limitsOf(t.Context(), "", keep, c.Limits, r.log)
	require.NoError(t, err)
	r.check, err = checkserver.New(checkserver.Config{Families: keep, Limits: r.limits, Log: r.log}, c.Checks)
	require.NoError(t, err)
	r.envoy, err = envoyserver.New(envoyserver.Config{Families: counts}, c.Rules)
	require.NoError(t, err)
	return r, func() []int {
		all := []int{int(maps.Collect(r.limits.All())["api"].Limit.Limit()), 0, r.check.Rules().Len()}
		for rule := range r.envoy.Counts() {
			all[1] += int(rule.Requests)
		}
		return all
	}
}

func openFamilies(t *testing.T) *families.Families {
	t.Helper()
	keep, err := families.New(families.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, keep.Close()) })
	return keep
}

// All doors change together or not at all, and no more after the end.
//
// Promise: A file of limits that is gone, empty or of comments alone removes no limit.
func TestReloadOfOneDirectory(t *testing.T) {
	limit := func(n string) string { return "limits:\n  api: window " + n + "/365d\n" }
	const more = checkFile + "  - {match: /more, limit: api, key: everybody}\n"
	dir := directory(t, "limits.yaml", limit("10"), "check.yaml", checkFile, "envoy/shop.yaml", rulesOf(2))
	r, figures := reloaderOf(t, dir)
	reload := func() {
		c, err := r.dirs.Read()
		r.put(t.Context(), c, err)
	}
	assert.Equal(t, []int{10, 2, 1}, figures())
	for i, step := range []struct {
		// files are followed by their new texts, "" to remove one.
		files   []string
		failing bool
		after   []int
	}{
		{[]string{"limits.yaml", limit("20"), "check.yaml", more, "envoy/shop.yaml", "domain: [\n"}, true, []int{10, 2, 1}},
		{[]string{"envoy/shop.yaml", rulesOf(3)}, false, []int{20, 3, 2}},
		// An open door keeps its rules.
		{[]string{"limits.yaml", limit("30"), "envoy/shop.yaml", rulesOf(4), "check.yaml", ""}, true, []int{20, 3, 2}},
		{[]string{"check.yaml", checkFile}, false, []int{30, 4, 1}},
		{[]string{"limits.yaml", "", "check.yaml", "proxy: caddy\nrules: []\n"}, true, []int{30, 4, 1}},
		{[]string{"limits.yaml", "# all is quiet\n", "check.yaml", checkFile}, true, []int{30, 4, 1}},
		{[]string{"limits.yaml", limit("30"), "envoy/shop.yaml", ""}, true, []int{30, 4, 1}},
		{[]string{"envoy/shop.yaml", rulesOf(4), "envoy/more.yaml", "domain: more\n"}, false, []int{30, 4, 1}},
		{[]string{"envoy/shop.yaml", ""}, false, []int{30, 0, 1}},
		{[]string{"envoy/shop.yaml", rulesOf(4)}, false, []int{30, 4, 1}},
	} {
		for files := step.files; len(files) > 0; files = files[2:] {
			if files[1] == "" {
				require.NoError(t, os.Remove(filepath.Join(dir, files[0])))
			} else {
				write(t, dir, files[0], files[1])
			}
		}
		reload()
		assert.Equal(t, step.after, figures(), i)
		assert.Equal(t, step.failing, r.reads.Fault() != nil, i)
	}
	assert.Equal(t, []uint64{5, 5}, []uint64{r.reads.Good.Load(), r.reads.Bad.Load()})

	door := r.check
	r.check = nil
	write(t, dir, "limits.yaml", limit("40"))
	reload()
	assert.EqualValues(t, 40, maps.Collect(r.limits.All())["api"].Limit.Limit(), "a file of a door that is not open is told of")
	r.check = door
	r.end()
	write(t, dir, "limits.yaml", limit("50"))
	reload()
	assert.Equal(t, []int{40, 4, 1}, figures())
}

func TestStartThatReadsForEverCanBeEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	blocked := make(chan struct{})
	defer close(blocked)
	_, err := readUntil(ctx, func() (*configdir.Config, error) {
		cancel()
		<-blocked
		return nil, nil
	})
	assert.ErrorIs(t, err, context.Canceled)
}
