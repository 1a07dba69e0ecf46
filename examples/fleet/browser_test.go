package main

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/cmd/ralbench/browser"
	"github.com/ral-limiter/ral/fleet"
)

func text(selector string) string {
	return fmt.Sprintf(`document.querySelector(%q).textContent`, selector)
}

// passed finds the page's count of calls that passed in a way.
func passed(way string) string {
	return fmt.Sprintf(`Number(document.querySelector("#ways [data-way=%s]").cells[2].textContent)`, way)
}

func TestEventsAreToldInWords(t *testing.T) {
	assert.Equal(t, "charged 1 call to Redis, which it had admitted without Redis", tell(fleet.Event{Kind: fleet.ChargedLocal, Units: 1}))
	assert.Equal(t, "charged 2 calls to Redis, which it had admitted without Redis", tell(fleet.Event{Kind: fleet.ChargedLocal, Units: 2}))
}

// A visitor stops Redis, brings it back, and stops a server. The page tells when the command ends.
func TestPageInABrowser(t *testing.T) {
	t.Parallel()
	b := browser.Start(t)
	for name, v := range map[string]browser.View{
		"desktop-light": {Scheme: "light", Width: 1280, Height: 1000},
		"phone-dark":    {Scheme: "dark", Width: 360, Height: 740},
	} {
		t.Run(name, func(t *testing.T) {
			page, end := start(t)
			o := b.Open(t, page, v)
			o.Until(passed("exact") + " > 0 && " + text("#what") + `.startsWith("Redis decides")`)
			o.Click("kill")
			o.Until(passed("exact") + " === 0 && " + passed("local") + " > 0 && " + text("#kill") + ` === "Bring Redis back"`)
			o.Until(`document.querySelectorAll("#chart rect.out").length > 0 && document.querySelectorAll('#chart [data-way="local"]').length > 0`)
			o.Until(text("#notes") + `.includes("outage began")`)
			o.Until(text("#shares-audit") + `.startsWith("by the servers’ shares ")`)
			assert.True(t, browser.Eval[bool](o, `document.querySelector("#audit .bad") === null`), "within the limit nothing is red")
			o.Fits(v.Width)
			o.Shoot(name + "-outage")
			o.Click("kill")
			o.Until(passed("exact") + " > 0 && " + passed("local") + " === 0")
			browser.Eval[any](o, `(document.querySelector("#server-2 button").click(), 0)`)
			o.Until(text("#server-2 [data-share]") + ` === "0 %" && ` + text("#server-2 button") + ` === "Start server 2"`)
			browser.Eval[any](o, `(document.querySelector("#load [value='0']").click(), 0)`)
			o.Until(text("#admitted") + ` === "0"`)
			o.Fits(v.Width)
			o.Quiet()
			end()
			o.Until(text("#trouble") + `.startsWith("The command does not answer")`)
		})
	}
}
