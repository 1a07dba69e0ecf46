package pages

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/cmd/ralbench/testkit/browser"
	"github.com/ral-limiter/ral/internal/testkit/observetest"
	"github.com/ral-limiter/ral/observe/inspect"
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
	browser.Eval[any](o, fmt.Sprintf(`(document.getElementById(%q).value = %q, 0)`, id, text))
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
			o.Until(`document.querySelector("[data-limit=api] canvas") && document.querySelector("[data-limit=api] .rates").textContent.includes("a second admitted")`)
			o.Fits(v.Width)
			whole := `[...document.querySelectorAll(".scroll")].every((e) => e.scrollWidth <= e.clientWidth)`
			assert.True(t, browser.Eval[bool](o, whole), "no table is cut")
			for what, condition := range map[string]string{
				"the charts of a row of cards are level": `[...limits.values()].every((a, _, all) => all.every((b) => a.card.offsetTop !== b.card.offsetTop ||
					a.card.querySelector(".chart").offsetTop === b.card.querySelector(".chart").offsetTop))`,
				"the last label of time has room": `[...document.querySelectorAll(".chart")].every((e) =>
					e.getBoundingClientRect().right - e.querySelector(".u-over").getBoundingClientRect().right >= 26)`,
				"the highest line is above all points": `[...limits.values()].every(({ chart: c }) => {
					const most = c.scales.y.max;
					return c.axes[1].splits(c, 1, 0, most).at(-1) === most && c.data.slice(1).flat().every((v) => v <= most);
				})`,
				"few points span a minute": `[...limits.values()].every(({ chart: { scales: { x } } }) => x.max - x.min >= 60 && x.max - x.min < 600)`,
				"ends of axes are round":   `[1, 1.2, 37, 110, 250, 3900].map(roundUp).join() === "1,1.2,40,120,300,4000"`,
			} {
				assert.True(t, browser.Eval[bool](o, condition), what)
			}
			assert.True(t, browser.Eval[bool](o, row("refused", "glutton", `row.cells[1].textContent === "300" && row.cells[2].textContent === "exact"`)))
			o.Shoot(name + "-lists")

			click(o, "#refused button")
			o.Until(`!document.getElementById("key").hidden && document.getElementById("key-name").textContent === "` + offender + `"`)
			o.Until(`document.getElementById("key-words").textContent.includes("6 of 10 used")`)
			assert.Equal(t, "admitted", browser.Eval[string](o, `document.getElementById("key-verdict").textContent`))

			o.Click("token") // there is a place for it
			click(o, "#block button")
			o.Until(`document.getElementById("changed").textContent.includes("needs a token")`)
			assert.Zero(t, s.API.Blocked(offender))
			enter(o, "token", token)
			click(o, "#block button")
			o.Until(`document.getElementById("key-verdict").textContent.startsWith("blocked for 10 min")`)
			assert.False(t, s.API.Choke(offender))
			assert.Positive(t, s.API.Blocked(offender))
			o.Until(row("refused", offender, `row.cells[3].textContent.startsWith("for 10 min")`))
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

func TestWrongTokenInABrowser(t *testing.T) {
	s := observetest.Start(t, inspect.Config{Tokens: map[string]string{"anna": token}})
	s.Load()
	o := browser.Start(t).Open(t, s.URL, browser.View{Scheme: "light", Width: 1100, Height: 900})
	click(o, "[data-limit=api]")
	o.Until(`document.querySelector("#owed button")`)
	click(o, "#owed button")
	o.Until(`!document.getElementById("key").hidden`)
	enter(o, "token", "another-0123456789")
	click(o, "#block button")
	o.Until(`document.getElementById("changed").textContent.startsWith("wrong token")`)
	assert.Zero(t, s.API.Stats().BlockedKeys)
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
	o.Until(`document.querySelectorAll("#owed button").length === 20 && document.getElementById("owed-title").textContent === "Owes most, of 25 keys that owe"`)
	o.Until(`!document.getElementById("use").hidden && document.querySelector("#use p").textContent.includes("of their limit: less than half (20), half or more (5).")`)
	click(o, "#owed-more")
	o.Until(`document.querySelectorAll("#owed button").length === 5 && document.getElementById("owed-more").hidden && !document.getElementById("owed-first").hidden`)
	o.Until(`/^As of .* ago\.$/.test(document.getElementById("owed-note").textContent)`)
	for i := range 25 {
		s.API.Reset(fmt.Sprint("key", i))
	}
	o.Until(`document.getElementById("owed").textContent === "No more keys."`)
	click(o, "#owed-first")
	o.Until(`document.getElementById("owed").textContent === "No key owes anything." && document.getElementById("owed-title").textContent === "Owes most"`)
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
	assert.True(t, browser.Eval[bool](o, `document.getElementById("changes").hidden && document.getElementById("token-form").hidden && !document.getElementById("read-only").hidden`))
	text := browser.Eval[string](o, `document.documentElement.innerHTML`)
	assert.NotContains(t, text, "glutton")
	assert.NotContains(t, text, "modest")
	assert.Regexp(t, `#[0-9a-f]{12}`, browser.Eval[string](o, `document.getElementById("key-name").textContent`))
	o.Quiet()
}
