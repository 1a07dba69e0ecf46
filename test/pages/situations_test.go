package pages

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/cmd/ralbench/testkit/browser"
	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/fleet"
	"github.com/ral-limiter/ral/internal/testkit/child"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/observe/inspect"
	"github.com/ral-limiter/ral/policy"
)

// situation is a program under load. Its trouble begins after a minute as usual.
type situation struct {
	url     string
	load    func(tick int, trouble bool) // of a twentieth of a second
	trouble func()                       // that begins the trouble, or nil
}

func limit(t *testing.T, name, text string, maxKeys int) *engine.Engine[string] {
	e := must.Get(engine.New[string](engine.Config{Name: name, Policy: must.Get(policy.Parse(text)), MaxKeys: maxKeys}))
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e
}

func page(t *testing.T, limits ...inspect.AnyLimit) string {
	h := must.Get(inspect.New(inspect.Config{ShowKeys: true, Tokens: map[string]string{"anna": token}, Logger: slog.New(slog.DiscardHandler)}, limits...))
	t.Cleanup(func() { require.NoError(t, h.Close()) })
	mux := http.NewServeMux()
	mux.Handle("/debug/ral/", h)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL + "/debug/ral/"
}

// calm lets clients act as they usually do: 40 of them, of which one is refused a little.
func calm(limits ...*engine.Engine[string]) func(tick int, trouble bool) {
	return func(tick int, _ bool) {
		for i, e := range limits {
			for n := range 1 + 39/(i+1) {
				if (tick+n)%(2+n/4) == 0 {
					e.Choke(fmt.Sprintf("customer-%02d", n+1))
				}
			}
		}
	}
}

// hotTenant has a customer that calls 20 times as often as any other.
func hotTenant(t *testing.T) situation {
	api, search, logins := limit(t, "api", "funnel 20, 8/s", 0), limit(t, "search", "sliding 900/m", 0), limit(t, "logins", "funnel 30, 10/s", 0)
	others := calm(api, search, logins)
	load := func(tick int, trouble bool) {
		others(tick, trouble)
		for range 12 {
			if trouble {
				api.Choke("customer-42")
			}
		}
	}
	return situation{url: page(t, inspect.Limit[string]{Limiter: logins}, inspect.Limit[string]{Limiter: search}, inspect.Limit[string]{Limiter: api}), load: load}
}

// redisGone has a fleet whose Redis ends.
func redisGone(t *testing.T) situation {
	redis := must.Get(child.OpenRedis(child.RedisConfig{}))
	t.Cleanup(func() { _ = redis.Close() })
	keys := must.Get(fleet.New(fleet.Config{Name: "api-keys", Policy: must.Get(policy.Parse("funnel 60, 8/s")), Servers: 2,
		Redis: rueidis.ClientOption{InitAddress: []string{redis.Addr()}}}))
	t.Cleanup(func() { _ = keys.Close() })
	addresses := limit(t, "addresses", "funnel 60, 20/s", 0)
	others := calm(addresses)
	load := func(tick int, trouble bool) {
		others(tick, trouble)
		for n := range 3 {
			_, _ = keys.Take(t.Context(), fmt.Sprintf("customer-%02d", 1+(tick+7*n)%24), 1)
		}
	}
	return situation{
		url:  page(t, inspect.Limit[string]{Limiter: addresses}, inspect.Limit[string]{Name: "api-keys", Limiter: keys, Stats: func() any { return keys.Stats() }}),
		load: load, trouble: redis.Kill,
	}
}

// nearlyFull has a table that invented keys fill.
func nearlyFull(t *testing.T) situation {
	addresses, logins := limit(t, "addresses", "funnel 60, 60/h", 5000), limit(t, "logins", "funnel 30, 10/s", 0)
	others := calm(logins)
	load := func(tick int, trouble bool) {
		others(tick, trouble)
		for n := range 6 {
			if i := tick*6 + n; trouble || i < 3000 {
				addresses.Take(fmt.Sprintf("203.0.%d.%d", i/250%19, i%250), 3+int64(i%5))
			}
		}
	}
	return situation{url: page(t, inspect.Limit[string]{Limiter: logins}, inspect.Limit[string]{Limiter: addresses}), load: load}
}

// usual is how long a program acts as usual, in twentieths of a second, and troubled until its
// trouble shows.
const usual, troubled = 20 * 65, 20 * 100

// act lets the clients of all programs act until the test ends. It returns when trouble shows.
func act(t *testing.T, all map[string]situation) {
	shows, stop, stopped := make(chan bool), make(chan bool), make(chan bool)
	go func() {
		defer close(stopped)
		ticker := time.NewTicker(50 * time.Millisecond) // wall: clients call at a rate
		defer ticker.Stop()
		for tick := 0; ; tick++ {
			select {
			case <-ticker.C:
			case <-stop:
				return
			}
			if tick == troubled {
				close(shows)
			}
			for _, s := range all {
				if tick == usual && s.trouble != nil {
					s.trouble()
				}
				s.load(tick, tick >= usual)
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		<-stopped
	})
	<-shows
}

// With SCREENSHOTS the test makes the pictures of docs/operating.md: make pictures.
//
// Promise: The page's first screen says which limit is in trouble, and which key is refused most.
func TestSituationsInABrowser(t *testing.T) {
	chromium := browser.Start(t)
	all := map[string]situation{"hot-tenant": hotTenant(t), "redis-gone": redisGone(t), "nearly-full": nearlyFull(t)}
	act(t, all)
	says := map[string]string{
		"hot-tenant":  `^api: \d+ calls a second are refused, more than are admitted\. Most often: customer-42$`,
		"redis-gone":  `^api-keys: Redis could not be asked`,
		"nearly-full": `^addresses: the table is 9\d% full: \d+ of 5000 keys\.`,
	}
	for name, s := range all {
		for view, v := range map[string]browser.View{
			"light": {Scheme: "light", Width: 1280, Height: 800}, "dark": {Scheme: "dark", Width: 1280, Height: 800},
			"phone-light": {Scheme: "light", Width: 400, Height: 800}, "phone-dark": {Scheme: "dark", Width: 400, Height: 800},
		} {
			t.Run(name+" "+view, func(t *testing.T) {
				o := chromium.Open(t, s.url, v)
				o.Until(`document.getElementById("status").classList.contains("wrong")`)
				assert.Equal(t, "Something is wrong:", browser.Eval[string](o, `document.getElementById("verdict").textContent`))
				assert.Regexp(t, says[name], browser.Eval[string](o, `document.getElementById("alarms").innerText.trim()`))
				limit, _, _ := strings.Cut(strings.TrimPrefix(says[name], "^"), ":")
				assert.Equal(t, limit, browser.Eval[string](o, `chosen`), "its lists are shown")
				assert.Equal(t, limit, browser.Eval[string](o, `document.querySelector("#limits button").dataset.limit`), "it comes first")
				if name != "redis-gone" {
					o.Until(`document.getElementById("owed").rows.length > 2 && document.getElementById("refused").rows.length > 0`)
					assert.True(t, browser.Eval[bool](o, `["refused", "owed"].every((id) => [...document.getElementById(id).rows].slice(0, 3).at(-1).getBoundingClientRect().bottom <= innerHeight)`))
				}
				o.Fits(v.Width)
				phone := strings.HasPrefix(view, "phone")
				if !phone || name == "hot-tenant" {
					o.ShootScreen(name + "-" + view)
				}
				if name == "hot-tenant" {
					assert.Equal(t, "customer-42", browser.Eval[string](o, `document.getElementById("refused").rows[0].cells[0].textContent`))
					click(o, "#alarms button:last-child")
					o.Until(`document.getElementById("key-name").textContent === "customer-42" && document.getElementById("key-verdict").textContent !== ""`)
					if !phone {
						o.ShootScreen("key-" + view)
					}
				}
				o.Quiet()
			})
		}
	}
}
