package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/cmd/rald/families"
	"github.com/ral-limiter/ral/policy"
)

// manyFamilies is n lines of limits of different families.
func manyFamilies(n int, line string) (text string) {
	for i := range n {
		text += fmt.Sprintf(line, i+1, i+1)
	}
	return text
}

// A fault is the error of rald check, and of a start.
func TestCheck(t *testing.T) {
	const rules = "domain: d\ndescriptors:\n"
	many := "limits:\n" + manyFamilies(32, "  l%d: at most 5/%ds\n")
	manyRules := func(n int) string {
		return rules + manyFamilies(n, "  - {key: k%d, rate_limit: {limit: sliding 5/%ds}}\n")
	}
	for _, c := range []struct {
		says  string // after the directory
		files []string
	}{
		{": 1 limits\n", []string{"limits.yaml", limitsFile}},
		{": 1 limits, 1 rules of the HTTP check\n", []string{"limits.yaml", limitsFile, "check.yaml", checkFile}},
		{": 0 limits, 1 rules of Envoy's rate limit service\n", []string{"envoy/shop.yaml", rulesOf(2)}},
		{": 32 limits, 20 rules of Envoy's rate limit service\n", []string{"limits.yaml", many, "envoy/d.yaml", manyRules(20)}},
		{" has neither limits.yaml nor check.yaml nor a directory envoy", nil},
		{"/limits.yml: this file is not read: the name limits.yaml is accepted", []string{"limits.yml", ""}},
		{"/limits.yaml:2: limits.api: ", []string{"limits.yaml", "limits:\n  api: funnel 100\n"}},
		{"/limits.yaml:34: limits.l33: no room for another family of limits", []string{"limits.yaml", many + "  l33: sliding 5/1s\n"}},
		{"/check.yaml:3: rules[0].limit: \"api\": the name of a limit of limits.yaml is accepted", []string{"check.yaml", checkFile}},
		{"/envoy/shop.yaml:1: dom: ", []string{"envoy/shop.yaml", "dom: shop\n"}},
		{"/envoy/d.yaml:42: d.k40: no room for another family of limits", []string{"limits.yaml", many, "envoy/d.yaml", manyRules(40)}},
	} {
		dir := directory(t, c.files...)
		var out bytes.Buffer
		err := run(t.Context(), []string{"check", dir}, noEnv, &out, io.Discard)
		if strings.HasSuffix(c.says, "\n") {
			assert.NoError(t, err, c.says)
			assert.Equal(t, dir+c.says, out.String())
			continue
		}
		assert.ErrorContains(t, err, dir+c.says)
		if strings.Contains(c.says, ".yaml:") {
			err = run(t.Context(), []string{"-state", "none", "-admin", "none", "-listen", "127.0.0.1:0", dir}, noEnv, &out, &out)
			assert.ErrorContains(t, err, dir+c.says)
		}
	}

	dir := directory(t, "a.yaml", rulesOf(2), "b.yaml", "domain: shop\ndescriptors: [{key: other, rate_limit: {unit: year}}]\n")
	for line, want := range map[string]string{
		"check":                    "rald check takes one directory, not []",
		"check " + dir + " -envoy": fmt.Sprintf("rald check takes one directory, not [%q \"-envoy\"]: flags come before it", dir),
		"check -none":              "flag provided but not defined",
		"check " + dir + "/none":   "no such file or directory",
		"check -envoy " + dir:      "b.yaml:1: domain: ",
		"check -envoy " + directory(t, "d.yaml", manyRules(40)): "d.yaml:42: d.k40: no room for another family of limits",
	} {
		assert.ErrorContains(t, run(t.Context(), strings.Fields(line), noEnv, io.Discard, io.Discard), want, line)
	}
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), []string{"check", "-envoy", "-envoy-merge", dir}, noEnv, &out, io.Discard))
	assert.Equal(t, dir+": 2 rules\n", out.String())
}

// The error names the fault, and nothing hangs.
func TestStartThatFails(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer busy.Close()
	state := t.TempDir()
	keep, err := families.New(families.Config{Dir: state})
	require.NoError(t, err)
	defer func() { assert.NoError(t, keep.Close()) }()
	_, err = keep.Keep(policy.Must(policy.Parse("funnel 1, 1/h")))
	require.NoError(t, err)
	dir := directory(t, "limits.yaml", limitsFile, "check.yaml", checkFile, "envoy/shop.yaml", rulesOf(2), "tokens", "anna short\n")
	for line, want := range map[string]string{
		"-listen BUSY DIR":                                     "-listen: ",
		"-envoy-listen BUSY DIR":                               "-envoy-listen: ",
		"-envoy-http BUSY DIR":                                 "-envoy-http: ",
		"-check-listen BUSY DIR":                               "-check-listen: ",
		"-admin BUSY DIR":                                      "-admin: ",
		"-metrics BUSY DIR":                                    "-metrics: ",
		"-listen unix:DIR/limits.yaml DIR":                     "-listen: ",
		"-admin 127.0.0.1:0 -admin-tokens-file DIR/tokens DIR": `-admin-tokens-file: ral: inspect.Config: Tokens["anna"]`,
		"-log xml DIR":                                         `-log is "xml": text or json is accepted`,
		"-state STATE DIR":                                     "the directory of the saved state: ",
		"-envoy DIR/envoy":                                     "-check-listen needs the file check.yaml",
	} {
		line = "-state none -admin none -listen 127.0.0.1:0 -check-listen 127.0.0.1:0 -envoy-listen 127.0.0.1:0 " + line
		line = strings.NewReplacer("BUSY", busy.Addr().String(), "DIR", dir, "STATE", state).Replace(line)
		err := run(t.Context(), strings.Fields(line), noEnv, io.Discard, io.Discard)
		if assert.ErrorContains(t, err, want, line) && strings.Contains(want, "state") {
			assert.ErrorContains(t, err, "the file is in use: "+state)
			assert.NotContains(t, err.Error(), "limits.yaml", "it is no fault of the limits")
		}
	}
	assert.FileExists(t, filepath.Join(dir, "limits.yaml"), "it is no abandoned socket")
}
