package main

import (
	"bytes"
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/cmd/rald/internal/envoyserver"
	"github.com/ral-limiter/ral/cmd/rald/internal/families"
	"github.com/ral-limiter/ral/cmd/rald/internal/redisserver"
	"github.com/ral-limiter/ral/fleet"
	"github.com/ral-limiter/ral/policy"
)

var (
	noEnv        environment
	havePassword = environment{"RALD_PASSWORD=secret"}
)

// parseLine parses a line of a shell: variables come before flags.
func parseLine(line string) (settings, error) {
	words := strings.Fields(line)
	n := 0
	for n < len(words) && strings.HasPrefix(words[n], "RALD_") {
		n++
	}
	return parse(words[n:], environment(words[:n]), io.Discard)
}

// Promise: Every flag has a variable and wins over it; unknown RALD_... variables are refused.
func TestFlagWinsOverItsVariable(t *testing.T) {
	s, err := parseLine("RALD_PASSWORD=secret RALD_DRAIN= -state none -rounding dragonfly /etc/rald")
	require.NoError(t, err)
	assert.Equal(t, []string{"/etc/rald", "", "secret", "127.0.0.1:7379", defaultAdmin, "10s"},
		[]string{s.dir, s.keys.Dir, s.redis.Password, s.listen, s.admin.listen, s.drain.String()})
	assert.Equal(t, redisserver.RoundDragonfly, s.redis.Rounding)
	assert.Equal(t, redisserver.ReserveConfig{Longest: time.Minute, Share: 0.5, MaxIDs: 100_000}, s.redis.Reserve)
	assert.Nil(t, s.fleet.config)
	assert.Equal(t, envoyserver.Config{Headers: true}, s.envoy.service)

	s, err = parseLine("RALD_MAX_KEYS=5 RALD_MAX_CLIENTS=6 RALD_ENVOY_SHADOW=true RALD_ENVOY=/rules -max-keys 7 -envoy-quota -envoy-metadata -envoy-merge -admin none -log-level error " +
		"-reserve-longest 5m -reserve-share 1 -reserve-ids 16 -refuse-unknown-commits")
	require.NoError(t, err)
	assert.Equal(t, redisserver.ReserveConfig{Longest: 5 * time.Minute, Share: 1, MaxIDs: 16, RefuseUnknown: true}, s.redis.Reserve)
	assert.Equal(t, []int{7, 6}, []int{s.keys.MaxKeys, s.redis.Clients})
	assert.Equal(t, []string{"/rules", ""}, []string{s.envoy.dir, s.admin.listen})
	assert.Equal(t, envoyserver.Config{Headers: true, Shadow: true, Quota: true, Metadata: true}, s.envoy.service)
	assert.True(t, s.envoy.rules.Merge)

	shared, err := parseLine("RALD_STATE=none -redis redis://a")
	require.NoError(t, err)
	assert.Empty(t, shared.keys.Dir)
	assert.NotNil(t, shared.fleet.config)

	log, err := s.log.logger(io.Discard)
	require.NoError(t, err)
	assert.False(t, log.Enabled(t.Context(), slog.LevelWarn))

	s, err = parse(nil, environment{"STATE_DIRECTORY=/var/lib/rald", "HOME=/", "RALD_ADMIN_TOKENS=anna one\n# none\n\n ben\ttwo\n"}, io.Discard)
	require.NoError(t, err)
	assert.Equal(t, "/var/lib/rald", s.keys.Dir)
	assert.Equal(t, map[string]string{"anna": "one", "ben": "two"}, s.admin.tokens)

	_, err = parseLine("RALD_SERVICE_HOST=10.0.0.1 RALD_SERVICE_PORT=7379 RALD_SERVICE_PORT_RESP=7379 RALD_PORT=tcp://10.0.0.1:7379 " +
		"RALD_PORT_7379_TCP=tcp://10.0.0.1:7379 RALD_PORT_7379_TCP_ADDR=10.0.0.1 RALD_ENVOY_PORT_8081_TCP_PROTO=tcp RALD_FLAGS=-idle")
	require.NoError(t, err, "of Kubernetes and systemd")
	new(settings).flags(nil).VisitAll(func(f *flag.Flag) {
		assert.False(t, serviceLink.MatchString(variable(f.Name)), f.Name)
	})
}

// Promise: `-redis` has addresses, user, password, database and TLS.
func TestSettingsOfAFleet(t *testing.T) {
	env := environment{"RALD_REDIS_PASSWORD=from the environment", "STATE_DIRECTORY=/var/lib/rald"}
	s, err := parse([]string{"-redis", "redis://db"}, env, io.Discard)
	require.NoError(t, err)
	assert.Empty(t, s.keys.Dir)
	assert.Equal(t, &families.Fleet{
		Redis: rueidis.ClientOption{InitAddress: []string{"db:6379"}, Password: "from the environment"},
		Name:  "rald", Budget: 5 * time.Millisecond,
	}, s.fleet.config)
	s, err = parse(strings.Fields("-redis rediss://ann:p%40ss@a:1,[::1]:2,::1/3 -fleet leased -fleet-name shop -outage closed -fleet-servers 3 -redis-budget 20ms"), env, io.Discard)
	require.NoError(t, err)
	assert.Equal(t, &families.Fleet{
		Redis: rueidis.ClientOption{
			InitAddress: []string{"a:1", "[::1]:2", "[::1]:6379"}, Username: "ann", Password: "p@ss", SelectDB: 3,
			TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12},
		},
		Name: "shop", Leased: true, Outage: fleet.FallbackClosed, Servers: 3, Budget: 20 * time.Millisecond,
	}, s.fleet.config)
}

func TestSettingsThatAreRefused(t *testing.T) {
	dir := directory(t, "empty", "\n", "one", "anna", "three", "\nanna a b", "twice", "anna a\nanna b\n")
	cert, key, _ := certificates(t)
	files := strings.NewReplacer("TOKENS", dir, "OWN_PEM", key, "WITH_TLS", "-tls-cert "+cert+" -tls-key "+key)
	for line, want := range map[string]string{
		"-save-every 0s":                       "-save-every is 0s: above 0 is accepted",
		"-max-keys 0":                          "-max-keys is 0: 1 or more is accepted",
		"-reserve-longest 0s":                  "-reserve-longest is 0s: a millisecond or more is accepted",
		"-reserve-share 0":                     "-reserve-share is 0: above 0, up to 1, is accepted",
		"-reserve-share NaN":                   "-reserve-share is NaN: above 0, up to 1, is accepted",
		"-reserve-share 1.5":                   "-reserve-share is 1.5: above 0, up to 1, is accepted",
		"RALD_RESERVE_SHARE=half":              `RALD_RESERVE_SHARE is "half", the environment's -reserve-share: a number such as 0.5 is accepted`,
		"-reserve-ids 15":                      "-reserve-ids is 15: 16 or more is accepted",
		"-max-clients -1":                      "-max-clients is -1: 1 or more is accepted",
		"-idle 0s":                             "-idle is 0s: above 0 is accepted",
		"-drain -1s":                           "-drain is -1s: 0 or more is accepted",
		"-rounding up":                         `-rounding is "up": true, redis-cell or dragonfly is accepted`,
		"-listen nowhere":                      `-listen is "nowhere": host:port or unix:path is accepted`,
		"-listen unix:":                        `-listen is "unix:": the path of a socket is missing`,
		"-tls-cert x":                          "-tls-cert and -tls-key go together",
		"-tls-cert x -tls-key x":               "-tls-cert and -tls-key: open x",
		"-tls-clients x":                       "-tls-clients needs -tls-cert and -tls-key",
		"-tls-clients= WITH_TLS":               `-tls-clients is "": a file is accepted`,
		"-tls-clients OWN_PEM WITH_TLS":        "has no certificate in PEM",
		"-tls-clients /none WITH_TLS":          "-tls-clients: open /none",
		"-password-file /none/x":               "-password-file: open /none/x",
		"-password-file TOKENS/empty":          "-password-file: TOKENS/empty is empty",
		"-admin-tokens-file /none/x":           "-admin-tokens-file: open /none/x",
		"-admin-tokens-file TOKENS":            "-admin-tokens-file: read TOKENS",
		"-admin-tokens-file TOKENS/one":        "-admin-tokens-file: TOKENS/one: line 1 has 1 words: a name and a token are accepted",
		"-admin-tokens-file TOKENS/three":      "-admin-tokens-file: TOKENS/three: line 2 has 3 words",
		"-admin-tokens-file TOKENS/twice":      `-admin-tokens-file: TOKENS/twice: line 2: "anna" has a token already`,
		"-envoy-http 127.0.0.1:0":              "-envoy-http needs -envoy, the directory envoy in DIR, or -envoy-xds",
		"-envoy-listen :0 TOKENS":              "-envoy-listen needs -envoy",
		"-envoy-shadow TOKENS":                 "-envoy-shadow needs -envoy",
		"-envoy-xds-node a":                    "-envoy-xds-node needs -envoy-xds",
		"-envoy-xds :1":                        `-envoy-xds is ":1": host:port is accepted, with a port from 1 to 65535`,
		"-envoy-xds=":                          `-envoy-xds is ""`,
		"-envoy-xds a:65536":                   `-envoy-xds is "a:65536"`,
		"-envoy-xds a:http":                    `-envoy-xds is "a:http"`,
		"-envoy-xds a:0":                       `-envoy-xds is "a:0"`,
		"-envoy-xds unix:/run/xds":             `-envoy-xds is "unix:/run/xds"`,
		"-envoy-xds unix:1":                    `-envoy-xds is "unix:1"`,
		"-envoy-xds a:1 -envoy-xds-ca=":        `-envoy-xds-ca is "": a file is accepted`,
		"-envoy-xds a:1 -envoy /rules":         "in place of files, and /rules has files",
		"-envoy-xds a:1 -envoy-xds-ca OWN_PEM": "-envoy-xds-ca: OWN_PEM has no certificate in PEM",
		"-envoy-clients 10.0.0.0/8":            "-envoy-clients needs -envoy",
		"a -idle 1s":                           `one directory is accepted, not ["a" "-idle" "1s"]: flags come before it`,
		"RALD_MAX_KEY=5":                       "the environment has RALD_MAX_KEY, which is no setting: rald -h names all",
		"RALD_MAX_KEYS=many":                   `RALD_MAX_KEYS is "many", the environment's -max-keys: a whole number is accepted`,
		"RALD_DRAIN=soon":                      `RALD_DRAIN is "soon", the environment's -drain: a time such as 1m30s is accepted`,
		"RALD_ENVOY_QUOTA=maybe":               "the environment's -envoy-quota: true or false is accepted",
		"RALD_ENVOY_CLIENTS=what":              `the environment's -envoy-clients: "what" is no network`,
		"RALD_LOG_LEVEL=loud":                  "the environment's -log-level: debug, info, warn or error is accepted",
		"RALD_FLEET=leased":                    "-fleet needs -redis",
		"-fleet-name x":                        "-fleet-name needs -redis",
		"-outage open":                         "-outage needs -redis",
		"-redis redis://a -state /tmp":         "-state is of no use with -redis, which keeps the keys: leave it out, or none",
		"-redis redis://a -fleet both":         `-fleet is "both": exact or leased is accepted`,
		"-redis redis://a -outage wait":        `-outage is "wait": share, open or closed is accepted`,
		"-redis redis://a -fleet-name :":       `-fleet-name is ":": 1 to 20 letters`,
		"-redis redis://a -fleet-name " + strings.Repeat("x", 21): "1 to 20 letters",
		"-redis redis://a -fleet-servers -1":                      "-fleet-servers is -1: 0 or more is accepted",
		"-redis redis://a -redis-budget 0s":                       "-redis-budget is 0s: above 0, up to 1m, is accepted",
		"-redis redis://a -redis-budget 2m":                       "-redis-budget is 2m0s",
		"-redis 127.0.0.1:6379":                                   "-redis: the URL begins with",
		"-redis http://a":                                         `-redis: the URL begins with "http": redis://host:6379`,
		"-redis redis://":                                         "is no address",
		"-redis redis://a:70000":                                  "is no address",
		"-redis redis://a:http":                                   "is no address",
		"-redis redis://secret@a":                                 "there is a user and no password",
		"-redis redis://:%zzsecret@a":                             "the password",
		"-redis redis://a/x":                                      `the database is "x": 0 or more is accepted`,
		"-redis redis://a/-1":                                     `the database is "-1"`,
		"-redis redis://a/1x":                                     `the database is "1x"`,
		"-redis redis://a/0?db=1":                                 "nothing may follow",
	} {
		_, err := parseLine(files.Replace(line))
		if assert.ErrorContains(t, err, files.Replace(want), line) {
			assert.NotContains(t, err.Error(), "secret", line)
		}
	}
}

// By a password, TLS, networks of clients, or -insecure-network; operators also need tokens.
//
// Promise: Non-loopback addresses need a password or TLS.
func TestListensOnLoopbackUnlessGuarded(t *testing.T) {
	cert, key, _ := certificates(t)
	withTLS := "-tls-cert " + cert + " -tls-key " + key
	tokens := "-admin-tokens-file " + filepath.Join(directory(t, "tokens", "# operators\n\nanna "+operatorToken+"\n"), "tokens")
	rules := " -envoy " + t.TempDir()
	for _, c := range []struct {
		// flags open an address that other machines reach.
		flags string
		// guards is the guard that the error names.
		guards string
		opened []string
	}{
		{"-listen :7379", "RALD_PASSWORD, -password-file or -tls-cert, or -insecure-network", []string{"RALD_PASSWORD=secret", withTLS, "-insecure-network"}},
		{"-check-listen :1", "-tls-cert, -check-clients, or -insecure-network", []string{withTLS, "-check-clients 10.0.0.0/8", "-insecure-network"}},
		{"-envoy-listen :1" + rules, "-tls-cert, -envoy-clients, or -insecure-network", []string{withTLS, "-envoy-clients 10.0.0.0/8", "-insecure-network"}},
		{"-envoy-http :1" + rules, "-tls-cert, -envoy-clients, or -insecure-network", []string{withTLS, "-envoy-clients 10.0.0.0/8", "-insecure-network"}},
		{"-metrics :1", "-tls-cert, -metrics-clients, or -insecure-network", []string{withTLS, "-metrics-clients 10.0.0.0/8", "-insecure-network"}},
		{"-admin :1", "-tls-cert and -admin-tokens-file", []string{withTLS + " " + tokens, "-insecure-network " + tokens}},
		{"-admin :1 " + withTLS, "-tls-cert and -admin-tokens-file", nil},
		{"-admin :1 " + tokens, "-tls-cert and -admin-tokens-file", nil},
		{"-admin :1 -insecure-network", "-tls-cert and -admin-tokens-file", nil},
	} {
		_, err := parseLine(c.flags)
		flag, rest, _ := strings.Cut(c.flags, " ")
		address, _, _ := strings.Cut(rest, " ")
		assert.ErrorContains(t, err, flag+` is "`+address+`", which other machines may reach: set `+c.guards)
		for _, guard := range c.opened {
			_, err := parseLine(guard + " " + c.flags)
			assert.NoError(t, err, guard)
		}
	}
	for _, other := range []string{":7379", "0.0.0.0:7379", "[::]:7379", "10.0.0.1:7379", "example.com:7379"} {
		_, err := parseLine("-listen " + other)
		assert.ErrorContains(t, err, "which other machines may reach", other)
	}
	for _, own := range []string{"127.0.0.1:0", "localhost:7379", "[::1]:7379", "127.3.2.1:7379"} {
		_, err := parseLine("-listen " + own)
		assert.NoError(t, err, own)
	}
}

// Help, manual and completion have every flag and command. bash reads its own.
func TestManualAndCompletionHaveEveryFlag(t *testing.T) {
	read := func(line string) (out, problems string, err error) {
		var text, other bytes.Buffer
		err = run(t.Context(), strings.Fields(line), noEnv, &text, &other)
		return text.String(), other.String(), err
	}
	texts := map[string]string{}
	for _, line := range []string{"help", "help check", "man", "completion bash", "completion zsh", "completion fish"} {
		out, problems, err := read(line)
		if strings.HasPrefix(line, "help") {
			require.ErrorIs(t, err, flag.ErrHelp)
		} else {
			require.NoError(t, err)
		}
		assert.Empty(t, problems, "it is for a pager")
		texts[line] = strings.ReplaceAll(out, `\-`, "-")
		new(settings).flags(nil).VisitAll(func(f *flag.Flag) {
			assert.Contains(t, strings.ReplaceAll(texts[line], "-o ", "-"), "-"+f.Name, line)
		})
		assert.Contains(t, texts[line], "completion", line)
	}
	assert.Contains(t, texts["help"], "rald check [-envoy] [-envoy-merge] [-limits FILE] [DIR]")
	assert.Contains(t, texts["help"], "RALD_MAX_KEYS")
	assert.Contains(t, texts["man"], "In the environment: RALD_MAX_KEYS.")
	bash := exec.Command("bash", "-c", "eval \"$0\" && complete -p rald", texts["completion bash"])
	out, err := bash.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Contains(t, string(out), "-o default -W 'check completion")

	_, problems, err := read("check -h")
	require.ErrorIs(t, err, flag.ErrHelp)
	assert.Contains(t, problems, "rald check [-envoy] [-envoy-merge] [-limits FILE] [DIR]")
	for _, line := range []string{"completion", "completion csh", "completion bash zsh"} {
		_, _, err := read(line)
		assert.ErrorContains(t, err, "bash, zsh or fish is accepted, not", line)
	}
}

func TestHealthURL(t *testing.T) {
	for variables, want := range map[string]string{
		"":                          "http://127.0.0.1:7381/healthz",
		"RALD_ADMIN=unix:/run/rald": "http://localhost:80/healthz",
		"RALD_ADMIN=localhost:1 RALD_METRICS=:9379": "http://localhost:1/healthz",
		"RALD_ADMIN=none RALD_METRICS=:9379":        "http://127.0.0.1:9379/healthz",
		"RALD_ADMIN=none":                           "http://127.0.0.1:7381/healthz",
		"RALD_ADMIN=[::]:1 RALD_TLS_CERT=/cert":     "https://127.0.0.1:1/healthz",
	} {
		var s settings
		require.NoError(t, environment(strings.Fields(variables)).set(s.flags(nil)))
		url, _ := healthAt(s)
		assert.Equal(t, want, url, variables)
	}
}

func TestNetworksHoldTheirAddresses(t *testing.T) {
	var n networks
	require.NoError(t, n.Set("10.1.2.3/8, 192.0.2.7,2001:db8::/32"))
	assert.Equal(t, "10.0.0.0/8,192.0.2.7/32,2001:db8::/32", n.String())
	for addr, want := range map[string]bool{
		"10.255.0.1:1": true, "[::ffff:10.0.0.1]:1": true, "192.0.2.7:1": true, "[2001:db8::1]:1": true, "127.0.0.1:1": true, "[::1]:1": true,
		"11.0.0.1:1": false, "192.0.2.8:1": false, "[2001:db9::1]:1": false,
	} {
		at, err := net.ResolveTCPAddr("tcp", addr)
		require.NoError(t, err)
		assert.Equal(t, want, n.has(at), addr)
	}
	assert.True(t, n.has(&net.UnixAddr{Name: "x"}))
	for _, text := range []string{"", "10.0.0.0/33", "10.0.0.0/8,", "host", "fe80::1%eth0", "10.0.0.0/8 10.0.0.1"} {
		assert.ErrorContains(t, n.Set(text), "is no network: networks such as 10.0.0.0/8 and addresses are accepted", text)
	}
}

// stranger is a connection from an address. strangers accepts each, and then fails.
type stranger struct {
	net.Conn
	at     net.Addr
	closed bool
}

func (s *stranger) RemoteAddr() net.Addr { return s.at }
func (s *stranger) Close() error         { s.closed = true; return nil }

type strangers struct {
	net.Listener
	waiting []*stranger
}

func (s *strangers) Accept() (net.Conn, error) {
	if len(s.waiting) == 0 {
		return nil, net.ErrClosed
	}
	c := s.waiting[0]
	s.waiting = s.waiting[1:]
	return c, nil
}

// Promise: An address for named networks closes connections from elsewhere.
func TestStrangersAreClosed(t *testing.T) {
	from := &strangers{}
	for range 20 {
		from.waiting = append(from.waiting, &stranger{at: &net.TCPAddr{IP: net.IPv4(11, 0, 0, 1), Port: 1}})
	}
	others := from.waiting
	from.waiting = append(from.waiting, &stranger{at: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 2}})
	var out bytes.Buffer
	var n networks
	require.NoError(t, n.Set("10.0.0.0/8"))
	l := guard(from, "-check-listen", n, slog.New(slog.NewTextHandler(&out, nil)))
	c, err := l.Accept()
	require.NoError(t, err)
	assert.Equal(t, "10.0.0.1:2", c.RemoteAddr().String())
	assert.False(t, c.(*stranger).closed)
	for i, c := range others {
		assert.True(t, c.closed, i)
	}
	assert.Equal(t, 10, strings.Count(out.String(), "\n"), "lines of the log are bounded")
	assert.Contains(t, out.String(), "address=11.0.0.1:1 flag=-check-listen")
	_, err = l.Accept()
	assert.ErrorIs(t, err, net.ErrClosed)
	assert.Equal(t, net.Listener(from), guard(from, "", nil, nil))
}

// manyFamilies is n lines of limits of different families.
func manyFamilies(n int, line string) (text string) {
	for i := range n {
		text += fmt.Sprintf(line, i+1, i+1)
	}
	return text
}

// A fault is the error of rald check, and of a start.
func TestCheckReportsTheFaultOfAStart(t *testing.T) {
	const rules = "domain: d\ndescriptors:\n"
	many := "limits:\n" + manyFamilies(32, "  l%d: at most 5/%ds\n")
	manyRules := func(n int) string {
		return rules + manyFamilies(n, "  - {key: k%d, rate_limit: {limit: sliding 5/%ds}}\n")
	}
	for _, c := range []struct {
		// says is the text after the directory.
		says  string
		files []string
	}{
		{": 1 limit\n", []string{"limits.yaml", limitsFile}},
		{": 1 limit, 1 rule of the HTTP check\n", []string{"limits.yaml", limitsFile, "check.yaml", checkFile}},
		{": 0 limits, 1 rule of Envoy's rate limit service\n", []string{"envoy/shop.yaml", rulesOf(2)}},
		{": 32 limits, 20 rules of Envoy's rate limit service\n", []string{"limits.yaml", many, "envoy/d.yaml", manyRules(20)}},
		{" has neither limits.yaml nor check.yaml nor a directory envoy", nil},
		{"/limits.yml: this file is not read: the name limits.yaml is accepted", []string{"limits.yml", ""}},
		{"/limits.yaml:2: api: ", []string{"limits.yaml", "limits:\n  api: funnel 100\n"}},
		{"/limits.yaml:34: l33: no room for another family of limits", []string{"limits.yaml", many + "  l33: sliding 5/1s\n"}},
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
		"check":                    "rald check takes one directory, or -limits, not []",
		"check " + dir + " -envoy": fmt.Sprintf("rald check takes one directory, or -limits, not [%q \"-envoy\"]: flags come before it", dir),
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
	out.Reset()
	dir = directory(t, "envoy/a.yaml", "domain: d\ndescriptors:\n  - {key: k, detailed_metric: true, rate_limit: {unit: day}}\n")
	require.NoError(t, run(t.Context(), []string{"check", dir}, noEnv, &out, io.Discard))
	assert.Equal(t, "warning: "+dir+"/envoy/a.yaml:3: descriptors[0].detailed_metric: it has no effect: metrics are by rule\n"+
		dir+": 0 limits, 1 rule of Envoy's rate limit service\n", out.String())
}

// The image has no system with zones.
func TestProgramHasTimeZones(t *testing.T) {
	file, err := os.Executable()
	require.NoError(t, err)
	program, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.True(t, bytes.Contains(program, []byte(strings.Join([]string{"Pacific", "Kiritimati"}, "/"))))
}

// The error names the fault, and nothing hangs.
func TestFailedStartNamesTheFault(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer busy.Close()
	state := t.TempDir()
	keep, err := families.New(families.Config{Dir: state})
	require.NoError(t, err)
	defer func() { assert.NoError(t, keep.Close()) }()
	_, err = keep.Keep(families.Need{Limit: policy.Must(policy.Parse("funnel 1, 1/h"))})
	require.NoError(t, err)
	dir := directory(t, "limits.yaml", limitsFile, "check.yaml", checkFile, "envoy/shop.yaml", rulesOf(2), "tokens", "anna short\n", "wrong/limit.yaml", limitsFile, "empty/README", "")
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
		"-envoy DIR/empty":                                     "/empty: no file here ends with .yaml or .yml",
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
	err = run(t.Context(), []string{"-state", "none", "-admin", "none", "-listen", "127.0.0.1:0", dir + "/wrong"}, noEnv, io.Discard, io.Discard)
	assert.ErrorContains(t, err, "/wrong has neither limits.yaml nor check.yaml nor a directory envoy")
}
