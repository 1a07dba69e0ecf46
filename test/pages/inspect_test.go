package pages

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/cmd/ralbench/testkit/browser"
	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/internal/testkit/observetest"
	"github.com/ral-limiter/ral/observe/inspect"
	"github.com/ral-limiter/ral/policy"
)

const token = "0123456789abcdef"

// row returns a JavaScript condition on the row of a list that begins with a key.
func row(list, key, condition string) string {
	return fmt.Sprintf(`[...document.getElementById(%q).rows].some((row) => row.cells[0].textContent === %q && (%s))`, list, key, condition)
}

func click(o *browser.Tab, selector string) {
	browser.Eval[any](o, fmt.Sprintf(`(document.querySelector(%q).click(), 0)`, selector))
}

func enter(o *browser.Tab, id, text string) {
	browser.Eval[any](o, fmt.Sprintf(`((e) => { e.value = %q; e.dispatchEvent(new Event("change")); })(document.getElementById(%q))`, text, id))
}

// Promise: The page shows, explains, blocks and unblocks an offender.
func TestOperatorInABrowser(t *testing.T) {
	chromium := browser.Start(t)
	for name, v := range map[string]browser.View{
		"desktop-light": {Scheme: "light", Width: 1280, Height: 900},
		"phone-dark":    {Scheme: "dark", Width: 390, Height: 740},
	} {
		t.Run(name, func(t *testing.T) {
			s := observetest.Start(t, inspect.Config{ShowKeys: true, Tokens: map[string]string{"anna": token}})
			s.Load()
			const offender = `<img src=x onerror=alert(1)>`
			s.API.Take(offender, 6)
			for range 500 {
				s.API.Take(offender, 6)
			}
			o := chromium.Open(t, s.URL, v)
			click(o, "[data-limit=api]")
			o.Until(row("refused", offender, "row.rowIndex === 1")) // it is refused most
			o.Until(row("owed", "glutton", "row.rowIndex === 1"))
			o.Until(`document.querySelector("#load canvas") && document.querySelector("[data-limit=api] .rates").textContent.includes("a second admitted")`)
			o.Fits(v.Width)
			whole := `[...document.querySelectorAll(".card")].every((e) => e.scrollWidth <= e.clientWidth)`
			assert.True(t, browser.Eval[bool](o, whole), "no table is cut")
			for what, condition := range map[string]string{
				"the charts of a row of cards are level": `[...limits.values()].every((a, _, all) => all.every((b) => a.card.offsetTop !== b.card.offsetTop ||
					a.card.querySelector(".chart").offsetTop === b.card.querySelector(".chart").offsetTop))`,
				"the last label of time has room": `[...document.querySelectorAll(".chart:has(canvas)")].every((e) =>
					e.getBoundingClientRect().right - e.querySelector(".u-over").getBoundingClientRect().right >= 26)`,
				"the highest line is above all points": `[...limits.values()].map((l) => l.chart ?? drawLoad.chart).every((c) => {
					const most = c.scales.y.max;
					return c.axes[1].splits(c, 1, 0, most).at(-1) === most && c.data.slice(1).flat().every((v) => v <= most);
				})`,
				"few points span a minute": `[drawLoad.chart].every(({ scales: { x } }) => x.max - x.min >= 60 && x.max - x.min < 600)`,
				"ends of axes are round":   `[1, 1.2, 37, 110, 250, 3900].map(roundUp).join() === "1,1.2,40,120,300,4000"`,
				"times have labels at every span": `[60, 61, 75, 90, 119, 121, 200, 301, 600, 1801, 5000, 7300, 21000, 43300, 70000, 86400].every((s) =>
					[0, 17, 1799, 40000].every((from) => { const n = marks(1.7e9 + from, 1.7e9 + from + s); return n.length >= 1 && n.length <= 5 && n[0] >= 1.7e9 + from && n.at(-1) <= 1.7e9 + from + s; }))`,
				"labels are round times":                                      `marks(1.7e9, 1.7e9 + 86400).every((v) => { const d = new Date(v * 1000); return d.getHours() % 6 === 0 && d.getMinutes() === 0; })`,
				"limits that refuse come first":                               `document.querySelector("#limits button").dataset.limit === "api" && document.querySelector("#quiet [data-limit=logins]") !== null`,
				"no refusals are not marked":                                  `[...document.querySelectorAll("#quiet .refused")].length === 0`,
				"who is refused and who has used most is in the first screen": `["refused", "owed"].every((id) => document.getElementById(id).rows[1].getBoundingClientRect().bottom <= innerHeight)`,
				"text is rounded":                                             `[time(0.3), time(1.26), time(75.4), number(6.5), number(7.96), number(1234.4)].join("|") === "under 1 s|1 s|75 s|6.5|8|1,234"`,
			} {
				assert.True(t, browser.Eval[bool](o, condition), what)
			}
			assert.True(t, browser.Eval[bool](o, row("refused", "glutton", `/^[0-9.]+$/.test(row.cells[1].textContent) && row.cells[1].title.startsWith("300 in the last ")`)))
			assert.True(t, browser.Eval[bool](o, row("owed", "glutton", `row.cells[1].textContent === "100%" && row.cells[2].title.startsWith("300 in the last ")`)))
			o.Click("span-day")
			o.Until(`document.getElementById("span-day").ariaPressed === "true" && limits.get("api").day !== undefined && drawLoad.chart.data[0].length > 0`)
			o.Click("span-minutes")
			o.Shoot(name + "-lists")

			click(o, "#refused button")
			o.Until(`!document.getElementById("key").hidden && document.getElementById("key-name").textContent === "` + offender + `"`)
			o.Until(`document.getElementById("key-words").textContent.includes("6 of 10 used")`)
			assert.Equal(t, "admitted", browser.Eval[string](o, `document.getElementById("key-verdict").textContent`))

			assert.True(t, browser.Eval[bool](o, off+` && document.getElementById("token-note").textContent === "The buttons need a token."`))
			enter(o, "token", token)
			o.Until(`document.getElementById("token-note").textContent === "Changes are logged as by anna."`)
			click(o, "#block button")
			o.Until(`document.getElementById("key-verdict").textContent.startsWith("blocked for 10 min")`)
			assert.Equal(t, 1, browser.Eval[int](o, `document.getElementById("key").innerText.split("10 min").length - 1`), "a time is said once")
			assert.False(t, s.API.Choke(offender))
			assert.Positive(t, s.API.Blocked(offender))
			o.Until(row("refused", offender, `row.cells[2].textContent.startsWith("10 min")`))
			o.Fits(v.Width)
			assert.True(t, browser.Eval[bool](o, whole), "no table is cut")
			o.Shoot(name + "-blocked")

			// Lifting leaves the used units.
			click(o, "#lift button")
			o.Until(`document.getElementById("key-verdict").textContent === "admitted"`)
			o.Until(`document.getElementById("changed").textContent.startsWith("Lifted the block") && document.getElementById("lift").hidden`)
			assert.Zero(t, s.API.Blocked(offender))
			assert.True(t, s.API.Choke(offender))
			assert.Equal(t, int64(3), s.API.Peek(offender, 0).Remaining)
			click(o, "#reset button")
			o.Until(`document.getElementById("key-words").textContent.includes("0 of 10 used")`)

			click(o, "#search button")
			o.Until(`document.activeElement.id === "search-key" && document.activeElement.matches(":invalid")`)

			enter(o, "search-key", "modest")
			click(o, "#search button")
			o.Until(`document.getElementById("key-name").textContent === "modest"`)
			enter(o, "units", "4")
			click(o, "#charge button")
			o.Until(`document.getElementById("key-words").textContent.includes("7 of 10 used")`)
			assert.Equal(t, int64(3), s.API.Peek("modest", 0).Remaining)

			click(o, "[data-limit=logins]")
			o.Until(row("owed", "root", "true"))
			click(o, "[data-limit=all]")
			o.Until(`document.getElementById("lists").hidden && document.getElementById("key-verdict").textContent === "admitted"`)
			o.Quiet()
		})
	}
}

// Promise: With two alarms, a phone's first screen has the first rows of both lists.
func TestTwoAlarmsOnAPhoneInABrowser(t *testing.T) {
	api, logins := limit(t, "api", "funnel 10, 1/h", 100), limit(t, "logins", "funnel 30, 10/s", 0)
	for i := range 99 {
		key := fmt.Sprintf("customer-%02d", i)
		for range 2 + i/10 {
			api.Take(key, 6)
		}
	}
	// Calls are refused by both limits, and the third is quiet.
	logins.Take("admin", 30)
	logins.Take("admin", 30)
	saved := errors.New("open /var/lib/api/logins.state: no space left on device, and the next save is tried in a minute")
	o := browser.Start(t).Open(t, page(t, inspect.Limit[string]{Limiter: limit(t, "search", "sliding 900/m", 0)}, inspect.Limit[string]{Limiter: api},
		inspect.Limit[string]{Limiter: logins, Stats: func() any {
			return struct {
				engine.Stats
				SaveError error
			}{logins.Stats(), saved}
		}}), browser.View{Scheme: "light", Width: 400, Height: 800})
	o.Until(`document.getElementById("owed").rows.length > 2 && document.getElementById("refused").rows.length > 2`)
	assert.Equal(t, 2, browser.Eval[int](o, `document.getElementById("alarms").children.length`))
	assert.Equal(t, "api", browser.Eval[string](o, `chosen`))
	assert.Less(t, browser.Eval[float64](o, `document.getElementById("owed").rows[0].getBoundingClientRect().bottom`), 800.0)
	o.Fits(400)
	o.ShootScreen("two-alarms")
	o.Quiet()
}

const off = `[...document.querySelectorAll("#changes button")].every((b) => b.disabled && b.title === "needs a token")`

// Promise: Buttons that need a token are off until it is right.
func TestTokensInABrowser(t *testing.T) {
	s := observetest.Start(t, inspect.Config{Tokens: map[string]string{"anna": token}})
	s.Load()
	o := browser.Start(t).Open(t, s.URL, browser.View{Scheme: "light", Width: 1100, Height: 900})
	click(o, "[data-limit=api]")
	o.Until(`document.querySelector("#owed button")`)
	click(o, "#owed button")
	o.Until(`!document.getElementById("key").hidden && ` + off)
	enter(o, "token", "another-0123456789")
	o.Until(`document.getElementById("token-note").textContent.startsWith("wrong token")`)
	assert.True(t, browser.Eval[bool](o, off))
	enter(o, "token", token)
	o.Until(`document.getElementById("token-note").textContent.includes("anna") && !document.querySelector("#block button").disabled`)
	for text, says := range map[string]string{"876001h": `want at most 4 years, which are "35040h"`, "soon": `such as "10m"`} {
		enter(o, "block-for", text)
		click(o, "#block button")
		o.Until(fmt.Sprintf(`document.getElementById("changed").textContent.includes(%q)`, says))
	}
	assert.Zero(t, s.API.Stats().BlockedKeys)
	browser.Eval[any](o, `((e) => { e.value = "another-0123456789"; e.dispatchEvent(new Event("input")); })(document.getElementById("token"))`)
	assert.True(t, browser.Eval[bool](o, off), "another token is not yet right")
}

// A key takes one line, an error stands beside the search, and a tap on a limit brings its lists
// into view. If the server is gone, the page says so and claims nothing.
func TestSearchInABrowser(t *testing.T) {
	s := observetest.Start(t, inspect.Config{ShowKeys: true})
	s.Load()
	long := strings.Repeat("customer-", 90)
	s.API.Take(long, 9)
	o := browser.Start(t).Open(t, s.URL, browser.View{Scheme: "light", Width: 400, Height: 420})
	click(o, "[data-limit=api]")
	o.Until(`[...document.getElementById("owed").rows].some((r) => r.querySelector("button")?.title.startsWith("customer-customer-"))`)
	assert.True(t, browser.Eval[bool](o, `new Set([...document.getElementById("owed").rows].map((r) => r.offsetHeight)).size === 1`), "a long key takes one line")
	o.Until(`document.getElementById("lists").getBoundingClientRect().top < innerHeight - 150`)
	enter(o, "search-key", long)
	click(o, "#search button")
	o.Until(`!document.getElementById("key").hidden && document.getElementById("key-name").textContent.startsWith("customer-")`)
	assert.True(t, browser.Eval[bool](o, `document.getElementById("key-name").offsetHeight < 40`))
	o.Fits(400)
	o.Quiet()
	enter(o, "search-key", `"open`)
	click(o, "#search button")
	o.Until(`document.getElementById("search-trouble").textContent.includes("not the text of a key") && document.getElementById("key").hidden`)
	o.Until(`document.getElementById("search").contains(document.getElementById("search-trouble")) && document.getElementById("trouble").textContent === ""`)
	browser.Eval[any](o, `(window.fetch = async () => { throw new Error("gone"); }, 0)`)
	o.Until(`document.getElementById("trouble").textContent.includes("not up to date") && document.body.classList.contains("stale")`)
}

func TestPagesOfTheListInABrowser(t *testing.T) {
	s := observetest.Start(t, inspect.Config{ShowKeys: true})
	for i := range 25 {
		s.API.Take(fmt.Sprint("key", i), 1+int64(i/5))
	}
	for range 3 {
		_, err := s.Trial.Admit(t.Context(), "key24", 1)
		assert.NoError(t, err)
	}
	o := browser.Start(t).Open(t, s.URL, browser.View{Scheme: "light", Width: 1100, Height: 900})
	click(o, "[data-limit=api]")
	o.Until(`document.querySelectorAll("#owed button").length === 10 && document.getElementById("owed-title").textContent === "Used most, of 25 keys in use"`)
	o.Until(`!document.getElementById("use").hidden && document.querySelector("#use p").textContent.includes("of their limit: less than half (20), half or more (5).")`)
	click(o, "#owed-more")
	o.Until(`document.getElementById("owed").rows[0].cells[0].textContent === "key14"`)
	click(o, "#owed-more")
	o.Until(`document.querySelectorAll("#owed button").length === 5 && document.getElementById("owed-more").hidden && !document.getElementById("owed-first").hidden`)
	assert.Equal(t, "As of 75 s ago.", browser.Eval[string](o, `(drawOwed({ rows: [], age: 75, for: 1 }, "x"), document.getElementById("owed-note").textContent)`))
	for i := range 25 {
		s.API.Reset(fmt.Sprint("key", i))
	}
	o.Until(`document.getElementById("owed").textContent === "No more keys."`)
	click(o, "#owed-first")
	o.Until(`document.getElementById("owed").textContent === "No key has used anything." && document.getElementById("owed-title").textContent === "Used most"`)
	o.Until(`document.getElementById("refused").textContent === "No key was refused." && document.getElementById("refused-note").textContent === ""`)
	o.Shoot("no-traffic")
	click(o, "[data-limit=tried]")
	o.Until(`document.getElementById("trials").textContent.includes("it would refuse 2 that were admitted")`)
	o.Quiet()
}

func TestReadOnlyPageInABrowser(t *testing.T) {
	s := observetest.Start(t, inspect.Config{})
	s.Load()
	o := browser.Start(t).Open(t, s.URL, browser.View{Scheme: "light", Width: 1100, Height: 900})
	click(o, "[data-limit=api]")
	o.Until(`document.querySelectorAll("#owed button").length === 2`)
	click(o, "#owed button")
	o.Until(`document.getElementById("key-verdict").textContent.startsWith("refused for")`)
	assert.True(t, browser.Eval[bool](o, `document.getElementById("changes").hidden && !document.getElementById("read-only").hidden`))
	card := browser.Eval[string](o, `document.getElementById("key").innerText`)
	assert.Equal(t, 1, strings.Count(card, "60 min"), "a time is said once: %s", card)
	assert.NotContains(t, card, "59m", "a time is rounded")
	assert.Contains(t, card, "then\n1 unit left")
	text := browser.Eval[string](o, `document.documentElement.innerHTML`)
	assert.NotContains(t, text, "glutton")
	assert.NotContains(t, text, "modest")
	assert.Regexp(t, `#[0-9a-f]{12}`, browser.Eval[string](o, `document.getElementById("key-name").textContent`))
	o.Quiet()
}

// Promise: The page says of a limit of calls at once how many are in use, and for how long the oldest has been.
func TestLimitInFlightInABrowser(t *testing.T) {
	exports := limit(t, "exports", "in flight 10, 1h at most", 0)
	for range 11 {
		exports.Reserve("tenant", 1, 0)
	}
	o := browser.Start(t).Open(t, page(t, inspect.Limit[string]{Limiter: exports}), browser.View{Scheme: "light", Width: 1100, Height: 900})
	o.Until(row("owed", "tenant", `row.cells[1].textContent === "100%"`))
	assert.Equal(t, "A release frees units sooner.", browser.Eval[string](o, `document.getElementById("owed-note").textContent.trim()`))
	click(o, "#owed button")
	o.Until(`/^refused for at most \d+ min$/.test(document.getElementById("key-verdict").textContent)`)
	card := browser.Eval[string](o, `document.getElementById("key").innerText`)
	assert.Regexp(t, `10 of 10 in use, the oldest for 0s to \d+`, card)
	assert.Contains(t, card, "then\n10 units left")
	assert.NotContains(t, card, "10 used")
	o.Until(`document.querySelector("#use p").textContent.endsWith(" 10 units in use.")`)
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error)
	go func() {
		_, err := exports.Acquire(ctx, "tenant", 1, time.Hour)
		left <- err
	}()
	o.Until(`/ 1 waiting call, the longest for (under 1|\d+) s, /.test(document.getElementById("load-words").textContent)`)
	cancel()
	assert.ErrorIs(t, <-left, engine.ErrCancelled)
	o.Shoot("in-flight")
	o.Quiet()
}

// Promise: The page shows the tenants of shares as one bar, and says what each used, borrowed and was refused.
func TestTenantsOfSharesInABrowser(t *testing.T) {
	guarantee := policy.Must(policy.Funnel(10, 1, 4*time.Hour))
	shares := must.Get(engine.NewShares(engine.SharesConfig[string]{
		Config: engine.Config{Name: "upstream"}, Total: policy.Must(policy.Funnel(100, 1, time.Hour)),
		Tenants: []string{"gold", "silver", "bronze"}, Guarantee: func(string) policy.Policy { return guarantee },
	}))
	shares.Take("gold", 10)
	shares.Take("gold", 7)
	shares.Take("<b>stranger", 80)
	shares.Take("silver", 1)
	o := browser.Start(t).Open(t, page(t, inspect.Limit[string]{Name: "upstream", Limiter: shares}), browser.View{Scheme: "light", Width: 390, Height: 900})
	o.Until(`!document.getElementById("use").hidden`)
	assert.Equal(t, "all most half unused", browser.Eval[string](o, `[...document.querySelectorAll("#use .stack i")].map((e) => e.className).join(" ")`))
	assert.Equal(t, "1 10 10 10", browser.Eval[string](o, `[...document.querySelectorAll("#use .stack i")].map((e) => e.style.flexGrow).join(" ")`))
	assert.Equal(t, "Tenants by refused and borrowed calls in the last minutes: <b>stranger (no guarantee, 0 borrowed, 1 refused), "+
		"gold (10 of 10 used, 1 borrowed, 0 refused), silver (1 of 10 used, 0 borrowed, 0 refused), bronze (0 of 10 used, 0 borrowed, 0 refused).",
		browser.Eval[string](o, `document.querySelector("#use p").textContent`))
	o.Fits(390)
}
