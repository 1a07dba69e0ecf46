package checkserver

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os/exec"
	"path"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// backend is a program that finds the path of a request's target in a language's ways. It reads a
// list of targets, and writes a list of lists of paths, "" for none.
type backend struct {
	// docs/serving.md has the settings.
	name, settings string
	program        []string
}

var backends = []backend{
	{"Node's URL", "backslashes: slash\nescaped_backslashes: keep\nleading_slashes: host\n", []string{"node", "-e", `
		const paths = [f => new URL(f, 'http://localhost').pathname]
		const read = f => paths.map(path => { try { return path(f) } catch { return '' } })
		console.log(JSON.stringify(JSON.parse(require('fs').readFileSync(0)).map(read)))`}},
	{"Node's url.parse", "", []string{"node", "-e", `
		const url = require('url')
		const paths = [f => url.parse(f).pathname, f => url.parse(f, false, true).pathname]
		const read = f => paths.map(path => { try { return path(f) ?? '' } catch { return '' } })
		console.log(JSON.stringify(JSON.parse(require('fs').readFileSync(0)).map(read)))`}},
	{"Python", "backslashes: keep\nescaped_backslashes: keep\nleading_slashes: host\n", []string{"python3", "-c", `
import json, sys
from urllib.parse import urlparse, urlsplit
def read(f):
    try:
        return [urlsplit(f).path, urlparse(f).path]
    except ValueError:
        return []
print(json.dumps([read(f) for f in json.load(sys.stdin)]))`}},
	{"PHP", "backslashes: keep\nescaped_backslashes: keep\nleading_slashes: host\n", []string{"php", "-r", `
		$read = fn($f) => [(string) parse_url($f, PHP_URL_PATH)];
		echo json_encode(array_map($read, json_decode(stream_get_contents(STDIN))), JSON_INVALID_UTF8_SUBSTITUTE);`}},
	{"Ruby", "backslashes: keep\nescaped_backslashes: keep\nleading_slashes: host\n", []string{"ruby", "-rjson", "-ruri", "-e", `
		read = ->(f) { [URI(f).path.to_s] rescue [] }
		puts JSON.parse(STDIN.read).map(&read).to_json`}},
	{"Go", "backslashes: keep\nescaped_backslashes: keep\nleading_slashes: merge\n", nil},
}

func (b *backend) paths(t *testing.T, targets []string) (all [][]string) {
	t.Helper()
	if b.program == nil {
		for _, target := range targets {
			u, err := url.ParseRequestURI(target)
			if err != nil {
				u = &url.URL{}
			}
			all = append(all, []string{u.Path})
		}
		return all
	}
	in, err := json.Marshal(targets)
	require.NoError(t, err)
	cmd := exec.Command(b.program[0], b.program[1:]...)
	cmd.Stdin = bytes.NewReader(in)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%s (make needs installs it)", &stderr)
	require.NoError(t, json.Unmarshal(out, &all), "%s", out)
	require.Len(t, all, len(targets))
	return all
}

// isLogin reports whether a backend that at most decodes paths and merges slashes serves it as
// /login.
func isLogin(found string) bool {
	text, err := url.PathUnescape(found)
	return err == nil && found != "" && path.Clean("/"+text) == "/login"
}

// targets returns targets in which some backend finds /login, neighbours of them, and random
// mixtures.
func targets() []string {
	all := []string{
		"//login", "//x/login", "///x/login", "////x/login", "///login", `/x\..\login`, `/.\login`, `/\x/login`, `/\x\login`, `/\login`, `\login`, `\\x\login`,
		`//x\login`, `/x/..\login`, `/%2e%2e\login`, `/a\%2e%2e\login`, `/login\`, `/login\.`, `/login/.\`, `/x\..//login`, `//x\..\login`, `/\/\x/login`,
		"//u@x/login", "//u:p@x/login", "//x:80/login", "//x:y/login", "//x%2Flogin", "//x%5Clogin", "//x;a/login", "//x;login", "//[::1]/login", "//[/login",
		"//x$/login", "//x^/login", "//x|y/login", "//%78/login", "//xé/login", "//x/..//login", "//../login", "//./login", "//x//login", "//x/login;a",
		"/.//x/login", "/%2e//x/login", "/a/%2e%2e/login", "/a/.%2E/login", "/%2e%2e/login", "/x%5C..%5Clogin", "/x%5c../login", "/%5Cx/login", "/%5clogin",
		"/a#/../login", "/login#x", "/a/#/login", "//x#/login", "/lo\tgin", "/\t/x/login", "\t/login", "/lo\ngin", "/log\rin", " /login", "/login ", "/login\t", "/login\x00",
		"/login\x7f", "/login%0a", "/login%00", "/%1flogin", "/login;%0a", "http://example.org/login", "http://example.org//x/login", "http://example.org/\\x\\login", "http://u@example.org/login", `http:\\example.org\login`, "http:/login", "http:login",
		"HTTP://example.org/login", "x:/login", "x:login", "login", "http://example.org?/login", "http://example.org#/login", `http://example.org\login`, "/login?a", "/login?//x/y", "?/login", "/%6cogin", "/login/",
		"//x?/login", "/api/../login", "/;/x/login", "//;/login", "/login;a", "/login%3Ba", "/login%2f", "/%2flogin", "/%2Fx/login", "/%2f/x/login", "*",
	}
	parts := []string{
		"/", "/", "/", "//", `\`, `\`, "x", "login", "login", "log", "in", ".", "..", "%2e", "%2E%2e", "%5c", "%5C", "%2f", "%2F", ";a", ";", "\t", "\n", "#", "?",
		"@", ":", ":80", "http:", "http://example.org", "%6c", " ", "%00", "[::1]", "%", "*", "é",
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 5_000 {
		text := "/"
		for range 1 + random.IntN(6) {
			text += parts[random.IntN(len(parts))]
		}
		if random.IntN(2) == 0 {
			text += "/login"
		}
		all = append(all, text)
	}
	return all
}

// With settings, only that backend counts.
//
// Promise: No admitted target leads Node, Python, PHP, Ruby or Go to an exhausted path.
func TestNoBackendReadsAWayPastARuleWithClients(t *testing.T) {
	if testing.Short() {
		t.Skip("it needs Node, Python, PHP and Ruby")
	}
	all := targets()
	// answers returns the answers of a door with these settings after the limit is spent.
	answers := func(settings string) (statuses []int) {
		d := open(t, "proxy: nginx\n"+settings+"rules:\n  - {match: /login, limit: one, key: everybody}\n")
		require.Equal(t, http.StatusNoContent, d.asNginx("POST", "/login").Code)
		for _, target := range all {
			statuses = append(statuses, d.asNginx("POST", target).Code)
		}
		return statuses
	}
	byDefault := answers("")
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) {
			configured := byDefault
			if b.settings != "" {
				configured = answers(b.settings)
			}
			logins := 0
			for i, found := range b.paths(t, all) {
				for _, path := range found {
					if isLogin(path) {
						logins++
						assert.NotEqual(t, http.StatusNoContent, byDefault[i], "%q is %q", all[i], path)
						assert.NotEqual(t, http.StatusNoContent, configured[i], "%q is %q by its settings", all[i], path)
					}
				}
			}
			assert.Greater(t, logins, 100)
		})
	}
}
