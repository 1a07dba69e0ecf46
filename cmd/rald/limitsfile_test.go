package main

import (
	"bytes"
	"context"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// takeOf makes a call on a limit of that name, and returns the taken and the remaining units.
func takeOf(t *testing.T, c *redis.Client, key, limit string) (took, remaining int64) {
	t.Helper()
	state, err := c.Do(context.Background(), "RAL.TAKE", key, limit).Slice()
	require.NoError(t, err)
	return state[1].(int64), state[5].(int64)
}

// Promise: rald reads the file of limits that Go programs read, and follows it: what was used counts on.
// Promise: `/healthz`, `INFO` and the operators' page of rald say that a file has faults while the one before holds, and `/healthz` stays 200.
func TestRaldFollowsAFileOfLimits(t *testing.T) {
	dir := directory(t, "limits.yaml", "limits:\n  api: window 10/365d\n", "limits.conf",
		"per-user: window 10/365d\n  per: user\n  warn-at: 0.5\n  plan gold: window 100/365d\njobs: in flight 2, 1h at most\n",
		"check.yaml", "proxy: traefik\nrules:\n  - {match: /, limit: per-user, key: everybody}\n")
	file, check, admin := filepath.Join(dir, "limits.conf"), freeAddr(t), freeAddr(t)
	s := start(t, "-state", "none", "-check-listen", check, "-admin", admin, "-limits", file, dir)
	c := s.client(t, redis.Options{Protocol: 2})
	for limit, want := range map[string]int64{"api": 9, "per-user": 9, "per-user/plan/gold": 99, "jobs": 1} {
		took, remaining := takeOf(t, c, "ann", limit)
		assert.Equal(t, [2]int64{1, want}, [2]int64{took, remaining}, limit)
	}
	passed := func() (n int) {
		for range 30 {
			if status, _ := fetch(t, http.DefaultClient, traefikURL(t, check), asTraefik("/")...); status == http.StatusNoContent {
				n++
			}
		}
		return n
	}
	assert.Equal(t, 10, passed())
	s.untilLogs(t, "a key has passed a share of its limit")

	write(t, dir, "limits.conf", "per-user: window 15/365d\n  plan gold: window 50/365d\njobs: in flight 2, 1h at most\n")
	require.NoError(t, s.Signal(syscall.SIGHUP))
	s.untilLogs(t, `msg="a limit has changed" limit=per-user setting="" from="window 10/365d" to="window 15/365d" at_the_next_start=false`)
	s.untilLogs(t, `limit=per-user setting="plan gold" from="window 100/365d" to="window 50/365d"`)
	assert.Equal(t, 5, passed())
	for limit, want := range map[string]int64{"per-user": 13, "per-user/plan/gold": 48, "jobs": 0} {
		_, remaining := takeOf(t, c, "ann", limit)
		assert.Equal(t, want, remaining, limit)
	}

	for _, text := range []string{"per-user: window 15/30d\njobs: in flight 2, 1h at most\n", "# nothing\n", "per-user: window\n"} {
		before := strings.Count(s.log.String(), "stays as it was")
		write(t, dir, "limits.conf", text)
		s.until(t, func() bool { return strings.Count(s.log.String(), "stays as it was") > before })
		_, remaining := takeOf(t, c, "bob", "per-user")
		assert.Positive(t, remaining, text)
	}
	assert.Contains(t, s.log.String(), "limits.conf:1: per-user: keys count under")
	operators := func() (healthz, page, info string) {
		status, healthz := fetch(t, http.DefaultClient, "http://"+admin+"/healthz")
		assert.Equal(t, http.StatusOK, status)
		_, page = fetch(t, http.DefaultClient, "http://"+admin+"/debug/ral/limits")
		info, err := c.Info(t.Context()).Result()
		require.NoError(t, err)
		return healthz, page, info
	}
	healthz, page, info := operators()
	assert.Contains(t, healthz, "ok\nthe last configuration is not in force")
	assert.NotContains(t, healthz, "per-user", "it needs no token")
	assert.Contains(t, page, `"health":"configuration: `+file+`:1: per-user: `)
	assert.Contains(t, info, "configuration_failing:1\r\nconfiguration_error:configuration: "+file+":1: per-user: ")
	write(t, dir, "limits.conf", "per-user: window 15/365d\njobs: in flight 2, 1h at most\n")
	s.until(t, func() bool { healthz, page, info = operators(); return healthz == "ok\n" })
	assert.NotContains(t, page, `"health"`)
	assert.Contains(t, info, "configuration_failing:0\r\nconfiguration_error:\r\n")
	s.end(t)
}

// Promise: Clients of rald call the tenants of a limit with shares, which follow the file, and a share that cannot follow yet is told of and tried again.
func TestRaldServesShares(t *testing.T) {
	const text = "upstream: funnel 100, 1/h\n  reserved: funnel 30, 1/2h\n  share gold: funnel 20, 1/4h\n"
	dir := directory(t, "limits.conf", text)
	s := start(t, "-state", "none", "-limits", filepath.Join(dir, "limits.conf"))
	c := s.client(t, redis.Options{Protocol: 2})
	took := func(tenant string, n int) int64 {
		t.Helper()
		state, err := c.Do(t.Context(), "RAL.TAKE", tenant, "upstream", n).Slice()
		require.NoError(t, err)
		return state[1].(int64)
	}
	assert.EqualValues(t, 1, took("greedy", 70))
	assert.EqualValues(t, 0, took("greedy", 1))
	assert.EqualValues(t, 1, took("gold", 20))
	assert.EqualValues(t, 0, took("gold", 1))
	_, err := c.Do(t.Context(), "RAL.REFUND", "gold", "upstream", 1).Result()
	assert.ErrorContains(t, err, "tenants share this limit: RAL.TAKE")

	write(t, dir, "limits.conf", text+"  share silver: funnel 10, 1/4h\n")
	s.untilLogs(t, `limit=upstream setting="share silver" from="" to="funnel 10, 1/4h"`)
	assert.EqualValues(t, 1, took("silver", 10))
	write(t, dir, "limits.conf", "upstream: funnel 200, 1/h\n  reserved: funnel 30, 1/2h\n  share gold: funnel 10, 1/4h\n  share silver: funnel 20, 1/4h\n")
	s.untilLogs(t, "some shares hold as they were, until they can follow the file")
	assert.Contains(t, s.log.String(), `setting="share gold" from="funnel 20, 1/4h" to="funnel 10, 1/4h"`)
	assert.NotContains(t, s.log.String(), `setting="share silver" from="funnel 10, 1/4h" to="funnel 20, 1/4h"`, "it has not changed")
	assert.Contains(t, s.log.String(), "limits.conf:4: upstream: share silver: ")
	assert.Contains(t, s.log.String(), `setting="" from="funnel 100, 1/h" to="funnel 200, 1/h" at_the_next_start=true`)
	assert.EqualValues(t, 0, took("silver", 1))
	s.end(t)
}

// Promise: The faults of rald's directory and of its file of limits are in one list.
func TestFaultsOfAllFilesAreInOneList(t *testing.T) {
	dir := directory(t, "limits.yaml", "limits:\n  api: 5/h\n", "limits.conf",
		"per-user: window 10/h\n  candidate: sliding 10/h\n  penalty: 5 in 1m, block 10m\nlogin: window\n", "good.conf", "api: window 1/h\n10/h: window 1/h\n")
	file := filepath.Join(dir, "limits.conf")
	err := run(t.Context(), []string{"check", "-limits", file, dir}, noEnv, new(bytes.Buffer), new(bytes.Buffer))
	require.Error(t, err)
	for _, want := range []string{"limits.yaml:2: api: ", file + ":4: login: "} {
		assert.ErrorContains(t, err, want)
	}
	write(t, dir, "limits.conf", "per-user: window 10/h\n  candidate: sliding 10\n  penalty: 5 in 1m\n")
	write(t, dir, "limits.yaml", "limits:\n  api: window 5/h\n  per-user: window 5/h\n")
	err = run(t.Context(), []string{"check", "-limits", file, dir}, noEnv, new(bytes.Buffer), new(bytes.Buffer))
	for _, want := range []string{
		file + ":2: per-user: candidate: ", file + ":3: per-user: penalty: ",
	} {
		assert.ErrorContains(t, err, want)
	}
	write(t, dir, "limits.conf", "per-user: window 10/h\n")
	err = run(t.Context(), []string{"check", "-limits", file, dir}, noEnv, new(bytes.Buffer), new(bytes.Buffer))
	assert.EqualError(t, err, file+":1: per-user: "+dir+"/limits.yaml has a limit of this name: another name is accepted")
	err = run(t.Context(), []string{"check", "-limits", filepath.Join(dir, "none")}, noEnv, new(bytes.Buffer), new(bytes.Buffer))
	assert.ErrorContains(t, err, "no such file")
	write(t, dir, "limits.conf", "per-user: window 10/h\n  plan a: window 20/h\n")
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), []string{"check", "-limits", file}, noEnv, &out, &out))
	assert.Equal(t, file+": 1 limit\n", out.String(), "as ral check counts")
}
