package checkserver

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/ral-limiter/ral/cmd/rald/internal/configfile"
	"github.com/ral-limiter/ral/cmd/rald/internal/families"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// one is a file with a rule of one limit.
func one(lines ...string) string {
	return "proxy: caddy\nrules:\n  - match: /\n    " + strings.Join(lines, "\n    ") + "\n"
}

// With file, line, key and the accepted values.
func TestFaultNamesFileLineAndKey(t *testing.T) {
	for text, want := range map[string]string{
		"":                                   "check.yaml: proxy is required",
		"proxy: &rules caddy\n*rules : []\n": "check.yaml:2: caddy: this key is unknown here, known: proxy",
		"proxy: {? [uri] : X}\nrules: []\n":  "check.yaml:1: proxy: a key here is no text",
		"proxy: caddy\nrules: 5\n":           "check.yaml:2: rules: a list is accepted",
		"proxy: caddy\n":                     "check.yaml:1: rules is required: a list of maps",
		"proxy: caddy\nrule: []\n":           "check.yaml:2: rule: this key is unknown here, known: proxy, trusted, allow, once, status, spread, rules, parameters, escaped_slashes, backslashes, escaped_backslashes, leading_slashes",
		one("limits: [{limit: 'in flight 10, 1m at most', key: address}]"):                              `check.yaml:4: rules[0].limits[0].limit: "in flight 10, 1m at most" counts requests until they end, and a check sees no end of a request: a limit of units over time is accepted`,
		one("limits: [{limit: window 5/h, key: header X, overrides: {a: 'in flight 10, 1m at most'}}]"): `"in flight 10, 1m at most" counts requests until they end`,
		"proxy: apache\nrules: []\n":                                                  `check.yaml:1: proxy: "apache" is not a known proxy: nginx, caddy, traefik`,
		"proxy: [nginx]\nrules: []\n":                                                 "check.yaml:1: proxy: a map is accepted, with the keys uri, method, host, address",
		"proxy: {method: X-M}\nrules: []\n":                                           "check.yaml:1: proxy: uri is required",
		"proxy: {uri: 'a b'}\nrules: []\n":                                            `check.yaml:1: proxy.uri: "a b": the name of a header field is accepted`,
		"proxy: {uri: Host}\nrules: []\n":                                             `check.yaml:1: proxy.uri: "Host": the name of a header field`,
		"proxy: caddy\nrules:\n  - {}\n":                                              "check.yaml:3: rules[0]: match is required",
		"proxy: caddy\nstatus: 200\n":                                                 `check.yaml:2: status: "200": 400 to 599 is accepted`,
		"proxy: caddy\nonce: a b\n":                                                   `check.yaml:2: once: "a b": the name of a header field is accepted`,
		"proxy: caddy\nspread: 0s\n":                                                  `check.yaml:2: spread: "0s": a time such as 30s is accepted`,
		"proxy: nginx\nstatus: 429\n":                                                 "check.yaml:2: status: 429: 403 or 401 is accepted, as nginx answers 500 for any other",
		"proxy: caddy\nbackslashes: drop\n":                                           `check.yaml:2: backslashes: "drop": slash or keep is accepted`,
		"proxy: caddy\nleading_slashes: keep\n":                                       `check.yaml:2: leading_slashes: "keep": host or merge is accepted`,
		"proxy: caddy\ntrusted: [10.0.0]\n":                                           `check.yaml:2: trusted[0]: "10.0.0": the address of a proxy or a prefix is accepted`,
		"proxy: caddy\ntrusted: [10.0.0.0/8, 0.0.0.0/0]\n":                            `check.yaml:2: trusted[1]: "0.0.0.0/0" has clients' addresses, and a client that is trusted chooses its address: networks of 7 bits or more are accepted`,
		"proxy: caddy\ntrusted: ['::ffff:0:0/96']\n":                                  `check.yaml:2: trusted[0]: "::ffff:0:0/96" has clients' addresses`,
		"proxy: caddy\ntrusted: []\nrules: [{match: /, limit: five, key: address}]\n": "check.yaml:2: trusted: 1 or more addresses or prefixes of proxies are accepted",
		one("limit: five", "key: address", "inform: transfer-encoding"):               `check.yaml:6: rules[0].inform: "transfer-encoding": the name of a header field that HTTP itself does not need is accepted`,
		one("limit: five", "key: header X", "override_by: header Y"):                  "check.yaml:6: rules[0].override_by: without overrides it has no effect",
		one("limit: five", "key: everybody", "overrides: {a: one}"):                   "check.yaml:6: rules[0].overrides: override_by is required",
		one("limit: five", "key: address", "overrides: {a: one}"):                     "check.yaml:6: rules[0].overrides.a: no request has this value of address: an address such as 192.0.2.1 is accepted",
		one("limit: five", "key: address/48", `overrides: {"2001:db8:1:2::": one}`):   "rules[0].overrides.2001:db8:1:2::: no request has this value of address/48: 2001:db8:1:: is accepted",
		one("limit: five", "key: header X", `overrides: {"": one}`):                   "no request has this value of header X: 1 or more characters is accepted",
		one("limit: five", "key: header X", "overrides: {a: 7}"):                      `check.yaml:6: rules[0].overrides.a: "7": the name of a limit`,
		one("limit: five", "key: header X", "cost: 2", "overrides: {a: one}"):         `check.yaml:7: rules[0].overrides.a: the cost of a request is 2, and "funnel 1, 1/365d" admits at most 1 at once`,
		one("limit: five", "key: header X", "overrides: [a]"):                         "check.yaml:6: rules[0].overrides: a map is accepted, from values to limits",
		"proxy: caddy\nallow: {address: [10.0.0]}\nrules: []\n":                       `check.yaml:2: allow.address[0]: "10.0.0": an address or a prefix is accepted`,
		"proxy: caddy\nallow: {address: [0.0.0.0/0]}\nrules: []\n":                    `check.yaml:2: allow.address[0]: "0.0.0.0/0" has all addresses, so that no rule applies: smaller networks are accepted`,
		"proxy: caddy\nallow: {address: [10.0.0.0/8, '::/0']}\nrules: []\n":           `check.yaml:2: allow.address[1]: "::/0" has all addresses`,
		"proxy: caddy\nallow: {address: ['::ffff:0:0/96']}\nrules: []\n":              `check.yaml:2: allow.address[0]: "::ffff:0:0/96" has all addresses`,
		"proxy: caddy\nallow: {everybody: [a]}\nrules: []\n":                          "check.yaml:2: allow.everybody: address, header NAME, cookie NAME or query NAME is accepted",
		"proxy: caddy\nallow: {header X: ['']}\nrules: []\n":                          "check.yaml:2: allow.header X[0]: 1 or more characters are accepted",
		one("limit: five"):                  "check.yaml:3: rules[0]: key is required",
		one("key: address"):                 "check.yaml:3: rules[0]: limit is required",
		one("limit: fife", "key: address"):  `check.yaml:4: rules[0].limit: "fife": the name of a limit of limits.yaml is accepted, or the text of one: `,
		one("limit: five", "key: addrress"): `check.yaml:5: rules[0].key: "addrress": address, header NAME, cookie NAME, query NAME, path NAME or everybody is accepted`,
		one("limit: five", "key: []"):       "check.yaml:5: rules[0].key: address, header NAME",
		"proxy: {uri: X-Uri}\nrules:\n  - {match: /, limit: five, key: header Host}\n": "check.yaml:3: rules[0].key: proxy names no field host",
		one("limit: five", "key: address/129"):                                         `check.yaml:5: rules[0].key: "address/129": address/1 to address/128 is accepted`,
		one("limit: five", "key: path id"):                                             `check.yaml:5: rules[0].key: "/" has no wildcard {id}`,
		one("limit: five", "key: address", "cost: 0"):                                  `check.yaml:6: rules[0].cost: "0": 1 or more is accepted`,
		one("limit: five", "key: address", "cost: 6"):                                  `check.yaml:6: rules[0].cost: 6: at most 5 is accepted, which is all that "funnel 5, 1/365d" admits at once`,
		one("limit: five", "key: address", "shadow: maybe"):                            `check.yaml:6: rules[0].shadow: "maybe": true or false is accepted`,
		one("limit: five", "key: address", "name: api"):                                "check.yaml:6: rules[0].name: a limit of limits.yaml has its name already",
		one("limit: funnel 5, 1/s", "key: address", "name: \"é\""):                     `check.yaml:6: rules[0].name: "é": 1 to 64 characters of ASCII are accepted`,
		one("limit: five", "key: header Key", "without_key: share"):                    `check.yaml:6: rules[0].without_key: "share": refuse, address or pass is accepted`,
		one("limit: five", "key: address", "unlimited: true"):                          "check.yaml:6: rules[0].unlimited: a rule without limits has no other keys than match",
		one("limits: []"):            "check.yaml:4: rules[0].limits: 0 limits: 1 to 8 are accepted",
		one("limits: []", "cost: 2"): "check.yaml:5: rules[0].cost: it stands in each limit of the list limits",
		one("limits:", "- {limit: \"funnel 5, 1/s\", key: address}", "- {limit: \"funnel 9, 1/m\", key: address}"): `check.yaml:6: rules[0].limits[1]: there are two limits named "default" in this rule`,
		one("limits:", "- {limit: five, key: address}", "- {limit: five, key: everybody}"):                         "check.yaml:6: rules[0].limits[1].key: everybody: the keys of limit five are address in line 5",
		one("limit: five", "key: address") + "  - {match: /a, limit: five, key: header X-Api-Key}\n":               "check.yaml:6: rules[1].key: header X-Api-Key: the keys of limit five are address in line 5, and keys of both would be mixed up",
		"proxy: {uri: X-Uri}\nrules:\n  - {match: POST /, unlimited: true}\n":                                      `check.yaml:3: rules[0].match: "POST /" has a method, and proxy names no field method`,
		"proxy: {uri: X-Uri}\nrules:\n  - {match: a.org/, unlimited: true}\n":                                      `check.yaml:3: rules[0].match: "a.org/" has a host, and proxy names no field host`,
		"proxy: {uri: X-Uri}\nrules:\n  - {match: /, limit: five, key: address}\n":                                 "check.yaml:3: rules[0].key: proxy names no field address",
		"proxy: caddy\nrules:\n  - {match: a, unlimited: true}\n":                                                  `check.yaml:3: rules[0].match: "a": a pattern of a path is accepted`,
		"proxy: caddy\nrules:\n  - {match: post /a, unlimited: true}\n":                                            `check.yaml:3: rules[0].match: "post": a method in upper case is accepted`,
		"proxy: caddy\nrules:\n  - {match: A.org/a, unlimited: true}\n":                                            `check.yaml:3: rules[0].match: "A.org": a host in lower case is accepted`,
		"proxy: caddy\nrules:\n  - {match: \"*.a.org/\", unlimited: true}\n":                                       `check.yaml:3: rules[0].match: "*.a.org": a host in lower case is accepted`,
		"proxy: caddy\nrules:\n  - {match: \"/{a\", unlimited: true}\n":                                            `check.yaml:3: rules[0].match: parsing "/{a": `,
		"proxy: caddy\nrules:\n  - {match: /a, unlimited: true}\n  - {match: /a, unlimited: true}\n":               `check.yaml:4: rules[1].match: with a slash at the end of each path, pattern "/a/{$}" conflicts with pattern "/a/{$}": `,
	} {
		_, err := Parse("check.yaml", []byte(text), limitNamed)
		assert.ErrorContains(t, err, want, text)
		var at *configfile.Error
		assert.ErrorAs(t, err, &at, text)
	}
	for _, path := range []string{"//a", "/a//b", "/./a", "/a/../b", "/a%2fb", "/a;b", "/a?b", "/a#b", `/a\b`, "/a%5cb"} {
		_, err := Parse("check.yaml", []byte("proxy: caddy\nrules:\n  - {match: '"+path+"', unlimited: true}\n"), limitNamed)
		assert.ErrorContains(t, err, "is the path of no request", path)
	}
}

// No file panics. Accepted rules pass or refuse each request.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		one("limit: five", "key: [address, header X-Api-Key]", "without_key: address"),
		one("limits:", "- {limit: five, key: cookie a, cost: 2}", "- {limit: \"funnel 9, 1/m\", key: everybody, shadow: true, without_key: pass}"),
		"proxy: {uri: X-Forwarded-Uri, method: X-Forwarded-Method, host: Host, address: X-Forwarded-For}\ntrusted: [127.0.0.1]\nstatus: 418\nrules:\n  - {match: 'GET a.org/{x}/{y...}', limit: two, key: path x}\n  - {match: '/a/{$}', unlimited: true}\n",
		"a: &a [*a]\n", "proxy: nginx\nrules: [{match: /}, {match: //}, 5, ~]\n",
		one("limit: queue 9/1h, 1", "key: everybody"), one("limit: \"queue 9, 1/h\"", "key: everybody"),
	} {
		f.Add(seed, "/a//b;c/%2e%2e/d?e#f")
	}
	in, err := families.New(families.Config{MaxKeys: 16})
	require.NoError(f, err)
	f.Cleanup(func() { _ = in.Close() })
	f.Fuzz(func(t *testing.T, text, uri string) {
		parsed, err := Parse("check.yaml", []byte(text), limitNamed)
		if err != nil {
			return
		}
		d, err := openIn(in, parsed)
		if errors.Is(err, families.ErrTooMany) {
			return
		}
		require.NoError(t, err)
		ended, end := context.WithCancel(t.Context())
		// No request waits in a queue then.
		end()
		for _, method := range []string{http.MethodGet, http.MethodConnect} {
			status := d.do(asked("X-Forwarded-Method", method, "X-Forwarded-Uri", uri).WithContext(ended)).Code
			if status != http.StatusNoContent && (status < 400 || status > 599) {
				t.Fatalf("%d for %s %q", status, method, uri)
			}
		}
	})
}
