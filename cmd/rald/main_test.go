package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ral-limiter/ral/cmd/rald/families"
	"github.com/ral-limiter/ral/cmd/rald/internal/redisserver"
	"github.com/ral-limiter/ral/policy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const beRald = "TEST_RALD_RUN" // makes the test's program run as rald

func TestMain(m *testing.M) {
	if os.Getenv(beRald) != "" {
		main()
		return
	}
	if addr := os.Getenv(beVictim); addr != "" {
		if err := victim(addr, os.Args[1]); err != nil {
			fmt.Println(err)
		}
		return
	}
	os.Exit(m.Run())
}

var (
	noEnv        environment
	havePassword = environment{"RALD_PASSWORD=secret"}
)

func TestSettings(t *testing.T) {
	s, err := parse([]string{"-state", "none", "-rounding", "dragonfly", "/etc/rald"}, noEnv, &bytes.Buffer{})
	require.NoError(t, err)
	assert.Equal(t, "/etc/rald", s.dir)
	assert.Empty(t, s.keys.Dir)
	assert.Equal(t, redisserver.RoundDragonfly, s.redis.Rounding)
	assert.Equal(t, "127.0.0.1:7379", s.listen)

	s, err = parse(nil, environment{"STATE_DIRECTORY=/var/lib/rald", "RALD_PASSWORD=secret"}, &bytes.Buffer{})
	require.NoError(t, err)
	assert.Equal(t, "/var/lib/rald", s.keys.Dir)
	assert.Equal(t, "secret", s.redis.Password)

	for _, word := range []string{"-h", "help"} {
		var help bytes.Buffer
		_, err = parse([]string{word}, noEnv, &help)
		require.ErrorIs(t, err, flag.ErrHelp)
		for _, flag := range []string{"-listen", "-state", "-rounding", "-password-file", "-tls-cert", "rald check [-envoy] [-envoy-merge] DIR"} {
			assert.Contains(t, help.String(), flag)
		}
	}
}

func TestHelpIsForAPager(t *testing.T) {
	for _, args := range [][]string{{"help"}, {"help", "check"}} {
		var out, problems bytes.Buffer
		require.ErrorIs(t, run(t.Context(), args, noEnv, &out, &problems), flag.ErrHelp)
		assert.Contains(t, out.String(), "-listen")
		assert.Empty(t, problems.String())
	}
	var problems bytes.Buffer
	require.ErrorIs(t, run(t.Context(), []string{"check", "-h"}, noEnv, io.Discard, &problems), flag.ErrHelp)
	assert.Contains(t, problems.String(), "rald check [-envoy] [-envoy-merge] DIR")
}

func TestSettingsThatAreRefused(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	require.NoError(t, os.WriteFile(empty, []byte("\n"), 0o600))
	for args, want := range map[string]string{
		"-save-every 0s":            "-save-every is 0s: above 0 is accepted",
		"-max-keys 0":               "-max-keys is 0: 1 or more is accepted",
		"-max-clients -1":           "-max-clients is -1: 1 or more is accepted",
		"-idle 0s":                  "-idle is 0s: above 0 is accepted",
		"-drain -1s":                "-drain is -1s: 0 or more is accepted",
		"-rounding up":              `-rounding is "up": true, redis-cell or dragonfly is accepted`,
		"-listen nowhere":           `-listen is "nowhere": host:port or unix:path is accepted`,
		"-listen unix:":             `-listen is "unix:": the path of a socket is missing`,
		"-tls-cert x":               "-tls-cert and -tls-key go together",
		"-tls-cert x -tls-key x":    "-tls-cert and -tls-key: open x",
		"-password-file /none/x":    "-password-file: open /none/x",
		"-password-file " + empty:   "-password-file: " + empty + " is empty",
		"-envoy-http 127.0.0.1:0":   "-envoy-http needs -envoy, or the directory envoy in DIR",
		"-envoy-listen :0 " + empty: "-envoy-listen needs -envoy, or the directory envoy in DIR",
		"-envoy-shadow " + empty:    "-envoy-shadow needs -envoy, or the directory envoy in DIR",
		"a b":                       `one directory is accepted, not ["a" "b"]: flags come before it`,
		"a -idle 1s":                `one directory is accepted, not ["a" "-idle" "1s"]: flags come before it`,
	} {
		_, err := parse(strings.Fields(args), noEnv, &bytes.Buffer{})
		assert.ErrorContains(t, err, want, args)
	}
}

// Promise: Non-loopback addresses need a password or TLS.
func TestListensOnLoopbackUnlessGuarded(t *testing.T) {
	for _, open := range []string{":7379", "0.0.0.0:7379", "[::]:7379", "10.0.0.1:7379", "example.com:7379"} {
		_, err := parse([]string{"-listen", open}, noEnv, &bytes.Buffer{})
		assert.ErrorContains(t, err, "which other machines may reach", open)
		_, err = parse([]string{"-listen", open}, havePassword, &bytes.Buffer{})
		assert.NoError(t, err, open)
	}
	envoy := []string{"-envoy", t.TempDir(), "-envoy-listen", ":8081"}
	_, err := parse(envoy, havePassword, &bytes.Buffer{})
	assert.ErrorContains(t, err, `-envoy-listen is ":8081", which other machines may reach: set -tls-cert`)
	envoy[3] = "localhost:8081"
	_, err = parse(append(envoy, "-envoy-http", ":8080"), noEnv, &bytes.Buffer{})
	assert.ErrorContains(t, err, `-envoy-http is ":8080", which other machines may reach: set -tls-cert`)
	for _, own := range []string{"127.0.0.1:0", "localhost:7379", "[::1]:7379", "127.3.2.1:7379"} {
		_, err := parse([]string{"-listen", own}, noEnv, &bytes.Buffer{})
		assert.NoError(t, err, own)
	}
}

// Probably another directory was meant.
func TestCheckOfDirectoryWithoutConfiguration(t *testing.T) {
	dir := t.TempDir()
	check := func() error {
		return run(t.Context(), []string{"check", dir}, noEnv, &bytes.Buffer{}, &bytes.Buffer{})
	}
	assert.EqualError(t, check(), dir+" has neither limits.yaml nor check.yaml nor a directory envoy")
	file := filepath.Join(dir, "limits.yml")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	assert.EqualError(t, check(), file+": this file is not read: the name limits.yaml is accepted")
	require.NoError(t, os.Remove(file))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "envoy"), 0o700))
	assert.NoError(t, check())
}

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "limits.yaml")
	for text, want := range map[string]string{
		"limits:\n  api: funnel 100, 10/s\n  login: at most 5/10m\n": "",
		"":                             "",
		"limits:\n  api: funnel 100\n": file + `:2: limits.api: `,
		"limits:\n  api: funnel 1, 1/s\n  api: at most 1/s\n":    file + `:3: limits.api: this key is there twice`,
		"limits:\n  a b: funnel 1, 1/s\n":                        file + `:2: limits.a b: a name has 1 to 64 letters`,
		"limits:\n  window_1-h: [1]\n":                           file + `:2: limits.window_1-h: the text of a limit is accepted`,
		"limit:\n  api: funnel 1, 1/s\n":                         file + `:1: limit: the keys here are limits`,
		"- a\n":                                                  file + `:1: a map is accepted, with the keys limits`,
		"limits:\n  a: sliding 1/s\nlimits:\n  b: sliding 1/s\n": file + `:3: limits: this key is there twice`,
		"limits:\n  a: sliding 1/s\n---\nlimits: {}\n":           file + `:3: there is a second document after ---`,
		"limits:\n  a: sliding 1/s\n---\n[\n":                    file + `: there is a second document after ---`,
		"limits:\n  a: &a sliding 1/s\n  b: *a\n":                "",
		"limits: &a\n  b: *a\n":                                  file + `:1: an anchor here has an alias of itself`,
		"---\nlimits:\n  a: sliding 1/s\n":                       "",
		"limits: 5\n":                                            file + `:1: limits: a map is accepted, from names to limits`,
		"limits:\n  a: [\n":                                      file + `:2: did not find expected node content`,
		"limits: [\n":                                            file + `:1: did not find expected node content`,
		"limits:\n  a: \xff\n":                                   file + `:2: this is not UTF-8`,
		"limits:\n  a: &x funnel 1, 1/s\n  *x : funnel 2, 1/s\n": file + `:3: limits.funnel 1, 1/s: a name has 1 to 64 letters`,
		"a: &limits 1\n*limits : {}\n":                           file + `:2: 1: the keys here are limits`,
		"limits:\n" + manyFamilies(40, "  l%d: sliding 5/%ds\n"): file + `:34: limits.l33: no room for another family of limits`,
	} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		var out bytes.Buffer
		err := run(context.Background(), []string{"check", dir}, noEnv, &out, &out)
		if want == "" {
			assert.NoError(t, err, text)
			assert.Contains(t, out.String(), dir+": ")
			continue
		}
		assert.ErrorContains(t, err, want, text)
		assert.ErrorContains(t, run(context.Background(), []string{"-state", "none", "-listen", "127.0.0.1:0", dir}, noEnv, &out, &out), want)
	}
	assert.Error(t, run(context.Background(), []string{"check", filepath.Join(dir, "none")}, noEnv, &bytes.Buffer{}, &bytes.Buffer{}))
	assert.Error(t, run(context.Background(), []string{"check"}, noEnv, &bytes.Buffer{}, &bytes.Buffer{}))
	assert.EqualError(t, run(context.Background(), []string{"check", dir, "-envoy"}, noEnv, &bytes.Buffer{}, &bytes.Buffer{}),
		fmt.Sprintf("rald check takes one directory, not [%q \"-envoy\"]: flags come before it", dir))
}

// manyFamilies is n lines of limits of different families.
func manyFamilies(n int, line string) (text string) {
	for i := range n {
		text += fmt.Sprintf(line, i+1, i+1)
	}
	return text
}

// Apart from the families of limits.yaml.
func TestCheckCountsFamiliesOfRules(t *testing.T) {
	dir := t.TempDir()
	check := func(n int, args ...string) error {
		text := "domain: d\ndescriptors:\n" + manyFamilies(n, "  - {key: k%d, rate_limit: {limit: sliding 5/%ds}}\n")
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "envoy"), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "envoy", "d.yaml"), []byte(text), 0o600))
		return run(t.Context(), append([]string{"check"}, args...), noEnv, &bytes.Buffer{}, &bytes.Buffer{})
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "limits.yaml"), []byte("limits:\n"+manyFamilies(32, "  l%d: at most 5/%ds\n")), 0o600))
	require.NoError(t, check(20, dir))
	assert.ErrorContains(t, check(40, dir), "d.yaml:42: d.k40: no room for another family of limits")
	assert.ErrorContains(t, check(40, "-envoy", filepath.Join(dir, "envoy")), "d.yaml:42: d.k40: no room for another family of limits")
}

// A state directory in use is one error, and no fault of the limits.
func TestStateThatIsInUse(t *testing.T) {
	dir, state := t.TempDir(), t.TempDir()
	file := "limits:\n  a: sliding 1/s\n  b: sliding 1/m\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "limits.yaml"), []byte(file), 0o600))
	keep, err := families.New(families.Config{Dir: state})
	require.NoError(t, err)
	defer func() { assert.NoError(t, keep.Close()) }()
	_, err = keep.Keep(policy.Must(policy.Parse("sliding 1/s")))
	require.NoError(t, err)
	err = run(t.Context(), []string{"-admin", "none", "-listen", "127.0.0.1:0", "-state", state, dir}, noEnv, &bytes.Buffer{}, &bytes.Buffer{})
	require.ErrorContains(t, err, "the directory of the saved state: ")
	assert.ErrorContains(t, err, "the file is in use: "+state)
	assert.NotContains(t, err.Error(), "limits.yaml")
}

func TestPortThatIsTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	err = run(context.Background(), []string{"-state", "none", "-listen", l.Addr().String()}, noEnv, &bytes.Buffer{}, &bytes.Buffer{})
	assert.ErrorContains(t, err, "-listen: ")
}
