package checkserver

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Promise: An override limits the requests with its value, and no others.
func TestOverrides(t *testing.T) {
	d := open(t, `
proxy: caddy
rules:
  - match: /by-key
    limit: two
    key: header X-Api-Key
    without_key: address
    overrides: {partner: "funnel 4, 1/365d", named: five}
  - match: /by-plan
    limits:
      - {limit: one, key: everybody, override_by: header X-Plan, overrides: {pro: "funnel 3, 1/365d"}}
  - match: /by-address
    limit: "funnel 1, 1/365d"
    key: address
    overrides: {192.0.2.7: "funnel 6, 1/365d", "2001:db8:1:2::": "funnel 7, 1/365d"}
`)
	for fields, passed := range map[[2]string]int{
		{"X-Api-Key", "partner"}: 4, {"X-Api-Key", "named"}: 5, {"X-Api-Key", "another"}: 2, {"X-Api-Key", ""}: 2,
	} {
		assert.Equal(t, passed, d.passes(t, http.MethodGet, "/by-key", fields[0], fields[1]), fields)
	}
	assert.Equal(t, 3, d.passes(t, http.MethodGet, "/by-plan", "X-Plan", "pro"))
	assert.Equal(t, 1, d.passes(t, http.MethodGet, "/by-plan", "X-Plan", "free"))
	for address, passed := range map[string]int{"192.0.2.7": 6, "2001:db8:1:2::5": 7, "192.0.2.8": 1} {
		assert.Equal(t, passed, d.passes(t, http.MethodGet, "/by-address", "X-Forwarded-For", address), address)
	}
	assert.Equal(t, `"two";q=4;w=126144000`, d.ask(http.MethodGet, "/by-key", "X-Api-Key", "partner").Header().Get("RateLimit-Policy"))
}

// Promise: Allowed addresses and values pass every rule, and count nothing.
func TestAllowedRequestsPass(t *testing.T) {
	d := open(t, `
proxy: caddy
allow: {address: [198.51.100.0/24, "2001:db8::7"], header X-Api-Key: [monitor]}
rules:
  - {match: /, limit: one, key: everybody}
`)
	for _, fields := range [][2]string{{"X-Forwarded-For", "198.51.100.7"}, {"X-Forwarded-For", "2001:db8::7"}, {"X-Api-Key", "monitor"}} {
		assert.Equal(t, 10, d.passes(t, http.MethodGet, "/", fields[:]...), fields)
	}
	assert.Equal(t, 1, d.passes(t, http.MethodGet, "/", "X-Forwarded-For", "2001:db8::8"))
	assert.Equal(t, Stats{Passed: 1, Refused: 9, Unlimited: 30, Rules: 1}, d.Stats())
}

func TestOverridesOfAFile(t *testing.T) {
	five, _ := limitNamed("five")
	dir := t.TempDir()
	check, others := filepath.Join(dir, Name), filepath.Join(dir, OverridesName)
	require.NoError(t, os.WriteFile(check, []byte("proxy: caddy\nrules: [{match: /, limit: one, key: header X, overrides: partners}]\n"), 0o600))
	_, err := Read(dir, limitNamed)
	assert.ErrorContains(t, err, `check.yaml:2: rules[0].overrides: "partners": a map from values to limits is accepted, or the name of such a map in overrides.yaml`)
	require.NoError(t, os.WriteFile(others, []byte("partners: {a: five}\n"), 0o600))
	rules, err := Read(dir, limitNamed)
	require.NoError(t, err)
	assert.Equal(t, five, rules.rules[0].limits[0].overrides["a"].limit)
	require.NoError(t, os.WriteFile(others, []byte("partners:\n  a: fife\nspare: {}\n"), 0o600))
	_, err = Read(dir, limitNamed)
	assert.ErrorContains(t, err, `overrides.yaml:2: partners.a: "fife": the name of a limit`)
	assert.ErrorContains(t, err, "overrides.yaml:3: spare: no rule of check.yaml has these overrides")
}
