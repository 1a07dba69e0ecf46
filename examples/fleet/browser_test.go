package main

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/cmd/ralbench/browser"
)

// rate is what the page's table says of answers reached in a way: "passed" or "refused".
func rate(way, what string) string {
	cell := map[string]int{"passed": 2, "refused": 3}[what]
	return fmt.Sprintf(`Number(document.querySelector("#ways [data-way=%s]").cells[%d].textContent.replace(",", ""))`, way, cell)
}

// text is what an element of the page says.
func text(selector string) string {
	return fmt.Sprintf(`document.querySelector(%q).textContent`, selector)
}

// A visitor kills Redis and sees the servers keep their shares, brings it back and sees
// it decide again; and the same for a server.
func TestPage(t *testing.T) {
	t.Parallel()
	chromium := browser.Start(t)
	for name, v := range map[string]browser.View{
		"desktop-light": {Scheme: "light", Width: 1280, Height: 1000},
		"phone-dark":    {Scheme: "dark", Width: 360, Height: 740},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := chromium.Open(t, begin(t, "-budget", "200ms").url, v)
			assert.Equal(t, "funnel 100, 100/s", browser.Eval[string](o, text("#limit")))
			decided := rate("exact", "passed") + " > 0 && " + rate("exact", "refused") + " > 0 && " +
				rate("local", "passed") + " + " + rate("local", "refused") + ` === 0 && ` + text("#redis .badge") + ` === "up"`
			// The words are those of the same second, which the next may take back on a
			// busy machine.
			o.Until(decided + " && " + text("#what") + `.startsWith("Redis decides")`)
			o.Until(`document.querySelectorAll('#chart path[data-way="exact"]').length > 0`)

			o.Click("redis-kill")
			o.Until(text("#redis .badge") + ` === "killed" && ` + rate("local", "passed") + " > 0 && " + rate("local", "refused") + " > 0 && " +
				rate("exact", "passed") + " === 0 && " + rate("exact", "refused") + " === 0")
			o.Until(`document.querySelectorAll("#chart rect.out").length > 0 && document.querySelectorAll('#chart path[data-way="local"]').length > 0`)
			assert.Contains(t, browser.Eval[string](o, text("#what")), "Each server keeps a third of the limit by itself")
			assert.Equal(t, "Bring Redis back", browser.Eval[string](o, text("#redis-kill")))
			assert.True(t, browser.Eval[bool](o, `document.getElementById("redis-pause").disabled`))
			assert.Contains(t, browser.Eval[string](o, text("#notes")), "Redis was killed (SIGKILL).")
			o.Until(text("#notes") + `.includes("outage began")`)
			o.Shoot(name + "-outage")

			o.Click("redis-kill")
			o.Until(decided)
			o.Until(text("#notes") + `.includes("outage ended") && ` + text("#notes") + `.includes("to Redis that it had let pass without")`)
			assert.Equal(t, "Kill Redis", browser.Eval[string](o, text("#redis-kill")))

			// What a killed server does not admit, the others do.
			o.Click("server-2-kill")
			o.Until(text("#server-2 .badge") + ` === "killed" && ` + text("#server-2 [data-share]") + ` === "0 %" && ` +
				rate("lost", "refused") + " > 0 && " + rate("exact", "passed") + " > 60")
			o.Shoot(name + "-server")
			o.Click("server-2-kill")
			o.Until(text("#server-2 .badge") + ` === "up" && ` + rate("lost", "refused") + " === 0 && " + text("#server-2 [data-admitted]") + `[0] !== "0"`)

			o.Click("redis-pause")
			o.Until(text("#redis .badge") + ` === "paused" && ` + rate("local", "passed") + " > 0")
			o.Click("redis-pause")
			o.Until(decided)

			browser.Eval[any](o, `(document.querySelector("#pattern [value=skewed]").click(), 0)`)
			o.Until(`parseInt(document.querySelector("#server-1 [data-asked]").textContent) > 4 * parseInt(document.querySelector("#server-3 [data-asked]").textContent)`)
			browser.Eval[any](o, `(document.querySelector("#demand [value='0.5']").click(), 0)`)
			o.Until(`parseInt(document.getElementById("sent").textContent) < 60`)
			o.Shoot(name + "-end")

			o.Fits(v.Width)
			o.Quiet()
		})
	}
}

// When the command has ended, the page says so.
func TestPageWithoutTheCommand(t *testing.T) {
	t.Parallel()
	c := begin(t)
	o := browser.Start(t).Open(t, c.url, browser.View{Scheme: "light", Width: 1100, Height: 900})
	c.end(t, syscall.SIGINT)
	o.Until(text("#trouble") + `.startsWith("The command does not answer")`)
}
