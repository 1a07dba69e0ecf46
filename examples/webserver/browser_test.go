package main

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/internal/browsertest"
)

// seen holds the fields of a limit that the page shows.
type seen struct {
	Note, Level      string
	Remaining, Limit string
	Share            float64 // of the bar
}

func sees(o *browsertest.Tab, card string) seen {
	return browsertest.Eval[seen](o, fmt.Sprintf(`(() => {
		const c = document.getElementById(%q), text = (n) => c.querySelector("[data-" + n + "]")?.textContent ?? "";
		const bar = c.querySelector(".bar"), box = bar.getBoundingClientRect();
		return { Note: text("note"), Level: c.dataset.level, Remaining: text("remaining"), Limit: text("limit"),
			Share: Math.round(100 * bar.firstElementChild.getBoundingClientRect().width / box.width) / 100 };
	})()`, card))
}

// text and number are what an element of the page says.
func text(selector string) string {
	return fmt.Sprintf(`document.querySelector(%q).textContent`, selector)
}

func number(selector string) string { return "Number(" + text(selector) + ")" }

// set chooses an option of the element of that id.
func set(o *browsertest.Tab, id, value string) {
	browsertest.Eval[any](o, fmt.Sprintf(`((e) => { e.value = %q; e.dispatchEvent(new Event("change")) })(document.getElementById(%q))`, value, id))
}

// press clicks on an element again and again until a condition holds. How fast a busy machine
// sends does not matter then.
func press(o *browsertest.Tab, id, until string) {
	browsertest.Eval[any](o, fmt.Sprintf(`(window.pressing = setInterval(() => document.getElementById(%q).click(), 250), 0)`, id))
	o.Until(until)
	browsertest.Eval[any](o, `(clearInterval(window.pressing), 0)`)
}

// said is what the last answer was.
func said(server, status string) string {
	return fmt.Sprintf(`(() => { const c = document.getElementById("log").rows[0].cells; return c[0].textContent === %q && c[1].textContent === %q })()`, server, status)
}

// A visitor sees each server limit by itself in process, the candidate differ, an address
// blocked and lifted, and both servers share the limit of a key.
func TestPage(t *testing.T) {
	browser := browsertest.Start(t)
	for name, v := range map[string]browsertest.View{
		"desktop-light": {Scheme: "light", Width: 1180, Height: 1000},
		"phone-dark":    {Scheme: "dark", Width: 360, Height: 740},
	} {
		t.Run(name, func(t *testing.T) {
			o := browser.Open(t, start(t), v)
			o.Until(`[...document.querySelectorAll(".bar")].every((b) => b.firstElementChild.getBoundingClientRect().width > b.clientWidth - 1) && ` + text("#key [data-limit]") + ` === "12"`)
			address := seen{Note: "full; 3 a second come back", Level: "full", Remaining: "30", Limit: "30", Share: 1}
			assert.Equal(t, address, sees(o, "address-1"))
			assert.Equal(t, address, sees(o, "address-2"))
			assert.Equal(t, seen{Note: "full; 1 a second come back", Level: "full", Remaining: "12", Limit: "12", Share: 1}, sees(o, "key"))
			assert.Equal(t, "127.0.0.1", browsertest.Eval[string](o, text("#address-1 [data-who]")))
			assert.Contains(t, browsertest.Eval[string](o, text("#key [data-redis]")), "Redis of its own: 127.0.0.1:")
			assert.Equal(t, "funnel 12, 5/s", browsertest.Eval[string](o, text("#candidate [data-limit]")))
			assert.Equal(t, "0", browsertest.Eval[string](o, text("[data-trial=WouldRefuse]")))
			assert.Equal(t, "address admitted, address refused", browsertest.Eval[string](o,
				`[...document.querySelectorAll("#candidate tbody th")].map((th) => th.textContent).join(", ")`), "not by the API key's limit")
			o.Shoot(name + "-full")

			// In process: what one server has used the other does not know. The candidate
			// refuses the end of the burst first, and admits more later.
			set(o, "to", "1")
			press(o, "ten", number("[data-trial=WouldRefuse]")+" > 0")
			press(o, "ten", said("1", "429 refused")+" && "+text("#log")+`.includes('"address";r=0;t=11 s')`)
			o.Until(`document.querySelector("#address-1 .bar i").getBoundingClientRect().width < document.querySelector("#address-1 .bar").clientWidth - 1`)
			assert.NotEqual(t, address, sees(o, "address-1"))
			assert.Equal(t, address, sees(o, "address-2"))
			press(o, "ten", number("[data-trial=WouldAdmit]")+" > 0 && "+number("[data-trial=Admitted]")+" > 0 && "+number("[data-trial=Refused]")+" > 0")
			press(o, "one", `["one", "address"].every((kind) => document.querySelector("#chart [data-kind=" + kind + "]"))`)
			press(o, "ten", `document.querySelector("#differences [data-kind=wouldAdmit]")`)
			assert.Zero(t, browsertest.Eval[int](o, `document.querySelectorAll("#chart [data-kind=two]").length`))

			// It comes back by itself.
			o.Until(number("#address-1 [data-remaining]") + " >= 4")

			// Blocked at server 1, the address has nothing there, and is told for how long.
			set(o, "for-1", "10m")
			o.Click("block-1")
			o.Until(`document.getElementById("address-1").dataset.level === "blocked"`)
			assert.Regexp(t, `^blocked for another (600|[1-5]\d\d)\.\d s$`, sees(o, "address-1").Note)
			press(o, "one", said("1", "429 refused")+` && document.querySelector("#chart [data-kind=blocked]")`)
			assert.Regexp(t, `^(600|[1-5]\d\d) s$`, browsertest.Eval[string](o, `document.getElementById("log").rows[0].cells[3].textContent`))
			assert.Equal(t, "full", sees(o, "address-2").Level)
			set(o, "to", "2")
			press(o, "one", said("2", "200 passed"))
			o.Shoot(name + "-blocked")

			// Lifted, it has all of its quota.
			o.Click("lift-1")
			o.Until(`document.getElementById("address-1").dataset.level === "full" && ` + text("#address-1 [data-remaining]") + ` === "30"`)
			set(o, "to", "1")
			press(o, "one", said("1", "200 passed"))
			assert.Empty(t, browsertest.Eval[string](o, text("#trouble")))

			// Over the fleet: the servers in turn use up one quota, and both refuse then.
			set(o, "to", "")
			o.Click("with-key")
			press(o, "ten", number("#key [data-remaining]")+" === 0 && "+
				number(`#key [data-by="1"]`)+" > 0 && "+number(`#key [data-by="2"]`)+" > 0 && "+
				`[1, 2].every((n) => [...document.getElementById("log").rows].some((r) => r.textContent.startsWith(n + '429 refused"key";r=0;t=')))`)
			press(o, "one", `["one", "two", "key"].every((kind) => document.querySelector("#chart [data-kind=" + kind + "]"))`)
			o.Until(text("#problem") + ` === ""`)
			o.Shoot(name + "-key")

			o.Fits(v.Width)
			o.Quiet()
		})
	}
}

// Without a Redis the page says so, and how to have one. The rest goes on.
func TestPageWithoutRedis(t *testing.T) {
	browser := browsertest.Start(t)
	t.Setenv("PATH", t.TempDir())
	o := browser.Open(t, start(t), browsertest.View{Scheme: "light", Width: 1180, Height: 1000})
	said := browsertest.Eval[string](o, text("#problem"))
	assert.Contains(t, said, "Nothing is limited over the fleet: there is no redis-server here: install Redis")
	assert.Contains(t, said, "-redis host:port")
	assert.True(t, browsertest.Eval[bool](o, `document.getElementById("with-key").disabled`))
	press(o, "ten", number("#refused")+" > 0")
	o.Shoot("without-redis")
	o.Fits(1180)
	o.Quiet()
}
