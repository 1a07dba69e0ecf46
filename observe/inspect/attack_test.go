package inspect_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/adapter/pagejson"
	"github.com/ral-limiter/ral/internal/testkit/logbuffer"
	"github.com/ral-limiter/ral/observe/inspect"
)

const changeBody = `{"limit":"api","key":"k","do":"charge","units":3}`

// attacked is a handler with the limit "api" that permits changes.
func attacked(t *testing.T, config inspect.Config) (*client, *engine.Engine[string]) {
	t.Helper()
	e := newEngine[string](t, engine.Config{Name: "api"})
	return serve(t, newHandler(t, config, inspect.Limit[string]{Limiter: e})), e
}

// Promise: Nothing changes without an accepted token.
func TestChangesNeedAToken(t *testing.T) {
	log := &logbuffer.Buffer{}
	c, e := attacked(t, inspect.Config{Tokens: map[string]string{"anna": anna, "bert": bert}, Logger: log.Logger()})
	for name, field := range map[string]string{
		"none":           "",
		"no scheme":      anna,
		"another scheme": "Basic " + anna,
		"another token":  "Bearer anna-0123456789abcdeg",
		"a beginning":    "Bearer " + anna[:len(anna)-1],
		"empty":          "Bearer ",
		"the operator":   "Bearer anna",
		"a huge one":     "Bearer " + strings.Repeat("a", 32<<10),
	} {
		a := c.send(http.MethodPost, "change", changeBody, "Authorization", field)
		want := "wrong token"
		if field == "" {
			want = "needs a token"
		}
		assertFault(t, a, http.StatusUnauthorized, want)
		assert.Contains(t, a.header.Get("WWW-Authenticate"), "Bearer", name)
	}
	// A browser sends cookies and parameters for any site.
	assertFault(t, c.send(http.MethodPost, "change", changeBody, "Cookie", "Authorization=Bearer "+anna), http.StatusUnauthorized, "token")
	assertFault(t, c.send(http.MethodPost, "change?token="+anna, changeBody), http.StatusUnauthorized, "token")
	assert.Equal(t, int64(10), e.Peek("k", 0).Remaining, "nothing was changed")
	assert.Len(t, log.Lines(), 10, "a flood of wrong tokens does not fill the log")
	assert.NotContains(t, strings.Join(log.Lines(), ""), anna[:8])

	assert.Equal(t, `{"operator":"bert"}`+"\n", string(c.send(http.MethodPost, "token", "{}", "Authorization", "Bearer "+bert).body))
	assertFault(t, c.send(http.MethodPost, "token", "{}", "Authorization", "Bearer "+anna[:20]), http.StatusUnauthorized, "wrong token")
	for _, token := range []string{anna, bert} {
		assert.Equal(t, http.StatusOK, c.send(http.MethodPost, "change", changeBody, "Authorization", "bearer "+token).status)
	}
	assert.Equal(t, int64(4), e.Peek("k", 0).Remaining)
}

func TestIsReadOnlyWithoutTokens(t *testing.T) {
	c, e := attacked(t, inspect.Config{})
	for _, field := range []string{"", "Bearer ", "Bearer " + anna} {
		assertFault(t, c.send(http.MethodPost, "change", changeBody, "Authorization", field), http.StatusForbidden, "has set no tokens")
	}
	assert.Equal(t, int64(10), e.Peek("k", 0).Remaining)
	assert.False(t, get[pagejson.Overview](c, "limits").Changes)
}

// Promise: Requests of other sites are refused.
func TestOtherSitesAreRefused(t *testing.T) {
	c, e := attacked(t, inspect.Config{Tokens: map[string]string{"anna": anna}})
	c.token = anna
	own := strings.TrimSuffix(c.url, "/debug/ral/")
	explain := `{"limit":"api","key":"k"}`
	for _, r := range []struct {
		method, path, body string
		fields             []string
		allowed            bool
	}{
		{"POST", "change", changeBody, []string{"Sec-Fetch-Site", "cross-site"}, false},
		{"POST", "change", changeBody, []string{"Origin", "https://other.example"}, false},
		{"POST", "change", changeBody, []string{"Origin", own + "1"}, false},
		{"POST", "key", explain, []string{"Sec-Fetch-Site", "cross-site"}, false},
		{"POST", "key", explain, []string{"Origin", "https://other.example"}, false},
		{"GET", "limits", "", []string{"Sec-Fetch-Site", "cross-site"}, false},
		{"GET", "limits", "", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}, false},
		{"GET", "", "", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "iframe"}, false},
		{"GET", "", "", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest", "image"}, false},
		// A link from elsewhere, the page itself, and programs.
		{"GET", "", "", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}, true},
		{"GET", "limits", "", []string{"Sec-Fetch-Site", "same-origin"}, true},
		{"GET", "limits", "", []string{"Sec-Fetch-Site", "none"}, true},
		{"POST", "key", explain, []string{"Origin", own}, true},
		{"POST", "change", changeBody, []string{"Sec-Fetch-Site", "same-origin", "Origin", own}, true},
	} {
		a := c.send(r.method, r.path, r.body, r.fields...)
		if r.allowed {
			assert.Equal(t, http.StatusOK, a.status, "%v", r)
		} else {
			assertFault(t, a, http.StatusForbidden, "another site")
		}
		assert.Empty(t, a.header.Get("Access-Control-Allow-Origin"))
		assert.Contains(t, a.header.Get("Content-Security-Policy"), "frame-ancestors 'none'")
		assert.Equal(t, "same-origin", a.header.Get("Cross-Origin-Resource-Policy"))
		assert.Equal(t, "nosniff", a.header.Get("X-Content-Type-Options"))
		assert.Equal(t, "no-store", a.header.Get("Cache-Control"))
	}
	assert.Equal(t, int64(7), e.Peek("k", 0).Remaining, "the page alone has charged")
	// A preflight gets no permission.
	a := c.send(http.MethodOptions, "change", "", "Origin", "https://other.example", "Access-Control-Request-Method", "POST")
	assert.Equal(t, http.StatusMethodNotAllowed, a.status)
	assert.Empty(t, a.header.Get("Access-Control-Allow-Headers"))
	// Forms of other sites cannot send this type.
	for _, kind := range []string{"", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/jsonp"} {
		assertFault(t, c.send(http.MethodPost, "change", changeBody, "Content-Type", kind), http.StatusUnsupportedMediaType, "application/json")
	}
}

// Promise: Foreign names for this server are refused.
func TestOtherNamesOfThisServerAreRefused(t *testing.T) {
	local, _ := attacked(t, inspect.Config{})
	named, _ := attacked(t, inspect.Config{Hosts: []string{"Admin.example."}})
	for host, want := range map[string]struct{ local, named bool }{
		"localhost":            {true, false},
		"LOCALHOST.:8080":      {true, false},
		"app.localhost":        {true, false},
		"127.0.0.1:9":          {true, true},
		"[::1]:9":              {true, true},
		"evil.example":         {false, false},
		"127.0.0.1.evil":       {false, false},
		"evillocalhost":        {false, false},
		"admin.example":        {false, true},
		"ADMIN.EXAMPLE.:443":   {false, true},
		"admin.example.evil:1": {false, false},
	} {
		for c, ok := range map[*client]bool{local: want.local, named: want.named} {
			a := c.send(http.MethodGet, "limits", "", "Host", host)
			if ok {
				assert.Equal(t, http.StatusOK, a.status, host)
			} else {
				assertFault(t, a, http.StatusForbidden, "as Hosts")
			}
		}
	}
	// Over other addresses than loopback, any name may be the server's.
	r := httptest.NewRequest(http.MethodGet, "http://server.example/debug/ral/limits", nil)
	w := httptest.NewRecorder()
	newHandler(t, inspect.Config{}).ServeHTTP(w, r)
	assert.Equal(t, http.StatusOK, w.Code)
}

func TestOnlyListedMethodsAndPathsAreServed(t *testing.T) {
	c, _ := attacked(t, inspect.Config{Tokens: map[string]string{"anna": anna}})
	c.token = anna
	for path, allowed := range map[string]string{
		"": "GET", "page.js": "GET", "page.css": "GET", "uplot.min.js": "GET", "uplot.min.css": "GET", "icon.svg": "GET",
		"limits": "GET", "keys?limit=api&by=owed": "GET", "history?limit=api": "GET", "key": "POST", "change": "POST", "token": "POST",
	} {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "QUERY", "get"} {
			a := c.send(method, path, changeBody)
			if method == allowed || method == "HEAD" && allowed == "GET" {
				assert.NotEqual(t, http.StatusMethodNotAllowed, a.status, "%s %s", method, path)
				continue
			}
			assert.Equal(t, http.StatusMethodNotAllowed, a.status, "%s %s", method, path)
			assert.Equal(t, allowed, a.header.Get("Allow"))
		}
	}
	for _, path := range []string{"page", "page.html", "uplot", "nothing", "..%2fpage.html", "uplot/LICENSE", "keys%00"} {
		assert.Equal(t, http.StatusNotFound, c.send(http.MethodGet, path, "").status, path)
	}
}

// Promise: Bodies, paths and parameters are bounded; malformed input changes nothing.
func TestHugeAndMalformedRequests(t *testing.T) {
	c, e := attacked(t, inspect.Config{Tokens: map[string]string{"anna": anna}})
	c.token = anna
	huge := strings.Repeat("a", 200<<10)
	for _, r := range []struct {
		path   string
		status int
		says   string
	}{
		{"keys?limit=api&by=owed&n=0", 400, "want 1 to 200"},
		{"keys?limit=api&by=owed&n=201", 400, "want 1 to 200"},
		{"keys?limit=api&by=owed&n=ten", 400, "want 1 to 200"},
		{"keys?limit=api&by=owed&n=1&n=2", 400, "given twice"},
		{"keys?limit=api&by=owed&m=1", 400, "unknown"},
		{"keys?limit=api&by=name", 400, `want "owed", "refused" or "warned"`},
		{"keys?limit=api&by=owed&after=x", 400, "earlier page"},
		{"keys?limit=api&by=refused&after=x", 400, "one page"},
		{"keys?limit=other&by=owed", 404, "no limit"},
		{"history?limit=other", 404, "no limit"},
		{"history?limit=api&since=1", 400, "unknown"},
		{"keys?%", 400, "query"},
		{"keys?limit=api&by=owed&after=" + huge[:4<<10], 414, "too long"},
		{"limits?since=-1", 400, "want a tick"},
		{"limits?since=18446744073709551615", 200, ""},
	} {
		a := c.send(http.MethodGet, r.path, "")
		if r.status == 200 {
			assert.Equal(t, 200, a.status, r.path)
			continue
		}
		assertFault(t, a, r.status, r.says)
		assert.Less(t, len(a.body), 1000, "an answer does not repeat all that was asked")
	}
	for _, r := range []struct {
		body   string
		status int
		says   string
	}{
		{``, 400, "body"},
		{changeBody + changeBody, 400, "the body: it is not one JSON value: invalid character '{' after top-level value"},
		{`{"limit":"api","key":"` + huge + `","do":"reset"}`, 413, "bad request: the body: it is too large: up to 128 KiB are accepted"},
		{strings.Repeat(" ", 200<<10) + changeBody, 413, "too large"},
		{strings.Repeat(`{"limit":`, 50<<8), 400, "body"},
		{`{"limit":"api","key":"k","do":"reset","more":1}`, 400, `the name "more" is unknown or given twice, want each of do, for, id, key, limit, units once at most`},
		{`{"limit":"api","key":"k","do":"charge","units":1.5}`, 400, "the body: units is 1.5, want a whole number, such as 5 or -5"},
		{`{"limit":"api","key":"k","do":"charge","units":1e30}`, 400, "units is 1e30, want a whole number"},
		{`{"limit":"api","key":"k","do":"charge","units":"5"}`, 400, `units is "5", want a whole number`},
		{`{"limit":"api","key":5,"do":"reset"}`, 400, "key is 5, want text in quotes"},
		{`{"limit":"api","key":"k","do":["reset"]}`, 400, `do is ["reset"], want text in quotes`},
		{`{"limit":{"api":"` + huge[:1000] + `"},"key":"k","do":"reset"}`, 400, "want text in quotes"},
		{`null`, 400, "it is null, want an object"},
		{`[]`, 400, "it is [], want an object"},
		{"{\"limit\":\"api\",\"key\":\"k\xff\",\"do\":\"reset\"}", 400, "not valid UTF-8"},
		{`{"limit":"api","key":"k\ud800","do":"reset"}`, 400, "surrogate"},
		{`{"limit":"api","key":"k","do":"reset","key":"other"}`, 400, "given twice"},
		{`{"limit":"api","Key":"k","do":"reset"}`, 400, "unknown"},
		{`{"limit":"other","key":"k","do":"reset"}`, 404, "no limit"},
		{`{"limit":"api","do":"reset"}`, 400, "neither key nor id"},
		{`{"limit":"api","key":"k","id":"00","do":"reset"}`, 400, "both set"},
		{`{"limit":"api","id":"` + strings.Repeat("0", 32) + `","do":"reset"}`, 404, "shown of late"},
		{`{"limit":"api","key":"\"k","do":"reset"}`, 400, "text of a key"},
		{`{"limit":"api","key":"k","do":"` + huge[:1000] + `"}`, 400, "want \"reset\""},
		{`{"limit":"api","key":"k","do":"charge"}`, 400, "units is 0"},
		{`{"limit":"api","key":"k","do":"charge","units":9223372036854775807}`, 400, "units"},
		{`{"limit":"api","key":"k","do":"charge","units":1,"for":"1m"}`, 400, "belong"},
		{`{"limit":"api","key":"k","do":"reset","units":1}`, 400, "belong"},
		{`{"limit":"api","key":"k","do":"block","for":"soon"}`, 400, "such as"},
		{`{"limit":"api","key":"k","do":"block","for":"100000h"}`, 400, "at most 4 years"},
	} {
		a := c.send(http.MethodPost, "change", r.body)
		assertFault(t, a, r.status, r.says)
		assert.Less(t, len(a.body), 1000, "an answer does not repeat all that was asked")
	}
	assert.Zero(t, e.Len(), "nothing was changed")
	assert.Zero(t, e.Blocked("k"))

	// The largest key of a fleet, with the longest escapes, fits.
	long := strings.Repeat("\x01", 64<<10/4)
	assert.Equal(t, http.StatusOK, c.post("change", charge("api", fmt.Sprintf("%q", long), 1)).status)
	assert.Equal(t, int64(9), e.Peek(long, 0).Remaining)
}

// odd are keys that a page or a log might misread.
var odd = []string{
	"plain", "with space", " at its ends ", "ünïcödé", "日本語",
	`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `'; --`, `&lt;`, `</title>`,
	`"quoted"`, `"`, `\`, `\"`, "`", "a\x00b", "line\nbreak\r\n", "tab\t", "\x1b[31mred\x1b[0m", "\x7f", "\u0085",
	"\xff\xfe", "half \xc3", "\u202egpj.exe", "zero\u200bwidth", "\ufeffbom", "\u2028", strings.Repeat("long", 1000),
	"{\"json\":1}", "../../etc/passwd", "%00%2f", "javascript:alert(1)",
}

// Promise: Every key is shown as text, no two alike.
func TestOddKeysAreText(t *testing.T) {
	for _, show := range []bool{true, false} {
		t.Run(fmt.Sprint("shown ", show), func(t *testing.T) {
			log := &logbuffer.Buffer{}
			c, e := attacked(t, inspect.Config{ShowKeys: show, Tokens: map[string]string{"anna": anna}, Logger: log.Logger()})
			c.token = anna
			for i, k := range odd {
				e.Take(k, 1+int64(i%9))
			}
			a := c.send(http.MethodGet, "keys?limit=api&by=owed&n=200", "")
			require.Equal(t, http.StatusOK, a.status)
			assert.NotContains(t, string(a.body), "<", "the JSON has no HTML in it either")
			assert.Equal(t, "application/json", a.header.Get("Content-Type"))
			var list pagejson.List
			require.NoError(t, json.Unmarshal(a.body, &list))
			require.Len(t, list.Rows, len(odd))
			ids, texts := map[string]bool{}, map[string]bool{}
			for _, row := range list.Rows {
				ids[row.ID], texts[row.Key] = true, true
				for _, r := range row.Key {
					assert.True(t, r >= ' ' && r != 0x7f && r != 0x202e && r != 0x200b && r != 0x2028 && r != 0xfffd, "%q", row.Key)
				}
				assert.LessOrEqual(t, len(row.Key), 300)
				// The row's key can be changed by its ID, whatever it is.
				x := c.explains("key", pagejson.KeyRequest{Limit: "api", ID: row.ID})
				assert.Equal(t, row.Key, x.Key)
				assert.Equal(t, row.Remaining, x.Parts[0].Remaining)
				x = c.explains("change", pagejson.ChangeRequest{KeyRequest: pagejson.KeyRequest{Limit: "api", ID: row.ID}, Do: "reset"})
				assert.Equal(t, int64(10), x.Parts[0].Remaining)
				assert.Equal(t, row.ID, x.ID)
			}
			assert.Len(t, ids, len(odd), "no two keys have one ID")
			if show {
				assert.Len(t, texts, len(odd), "no two keys have one text")
			} else {
				assert.Equal(t, map[string]bool{"": true}, texts, "no key is shown")
			}
			for _, k := range odd {
				assert.Equal(t, int64(10), e.Peek(k, 0).Remaining, "%q", k)
			}
			lines := log.Lines()
			assert.Len(t, lines, len(odd), "no key breaks a record into two")
			for _, k := range odd[:3] {
				assert.NotContains(t, strings.Join(lines, "\n"), strings.TrimSpace(k), "a log has hashes alone")
			}
		})
	}
}

// The hash of a key cannot be computed outside the process, and is another one under each
// limit.
//
// Promise: Keys are hidden by default, behind hashes with a secret.
func TestHashesHaveASecret(t *testing.T) {
	limits := func() *client {
		return serve(t, newHandler(t, inspect.Config{},
			inspect.Limit[string]{Limiter: newEngine[string](t, engine.Config{Name: "one"})},
			inspect.Limit[string]{Limiter: newEngine[string](t, engine.Config{Name: "two"})}))
	}
	a, b := limits(), limits()
	one := a.explains("key", key("one", "10.0.0.1")).ID
	assert.Len(t, one, 32)
	assert.Equal(t, one, a.explains("key", key("one", "10.0.0.1")).ID)
	assert.NotEqual(t, one, a.explains("key", key("one", "10.0.0.2")).ID)
	assert.NotEqual(t, one, a.explains("key", key("two", "10.0.0.1")).ID)
	assert.NotEqual(t, one, b.explains("key", key("one", "10.0.0.1")).ID, "each process has a secret of its own")
	// An ID of one limit is none of another.
	assertFault(t, a.post("key", pagejson.KeyRequest{Limit: "two", ID: one}), http.StatusNotFound, "shown of late")
}
