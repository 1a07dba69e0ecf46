package main

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/internal/browsertest"
)

// seen holds the fields of a limit that the page shows.
type seen struct {
	Who, Note, Level string
	Remaining, Limit string
	Share            float64 // of the bar
}

func sees(o *browsertest.Tab, card string) seen {
	return browsertest.Eval[seen](o, fmt.Sprintf(`(() => {
		const c = document.getElementById(%q), text = (n) => c.querySelector("[data-" + n + "]")?.textContent ?? "";
		const bar = c.querySelector(".bar"), box = bar.getBoundingClientRect();
		return { Who: text("who"), Note: text("note"), Level: c.dataset.level, Remaining: text("remaining"), Limit: text("limit"),
			Share: bar.firstElementChild.getBoundingClientRect().width / box.width };
	})()`, card))
}

// The page shows a quota drain and come back.
func TestPage(t *testing.T) {
	browser := browsertest.Start(t)
	for name, v := range map[string]browsertest.View{
		"desktop-light": {Scheme: "light", Width: 1100, Height: 900},
		"phone-dark":    {Scheme: "dark", Width: 360, Height: 740},
	} {
		t.Run(name, func(t *testing.T) {
			o := browser.Open(t, start(t), v)
			o.Until(`document.querySelector("#address .bar i").getBoundingClientRect().width === document.querySelector("#address .bar").clientWidth`)
			full := sees(o, "address")
			assert.Equal(t, seen{Who: "127.0.0.1", Note: "full; 3 a second come back", Level: "full", Remaining: "30", Limit: "30", Share: 1}, full)
			assert.Equal(t, "–", sees(o, "key").Remaining)
			o.Shoot(name + "-full")

			o.Click("ten")
			o.Until(`document.getElementById("passed").textContent === "10"`)
			o.Until(`Number(document.querySelector("#address [data-remaining]").textContent) < 26`)
			for range 3 {
				o.Click("ten")
			}
			// Further requests hold it near nothing.
			o.Click("keep")
			o.Until(`Number(document.getElementById("refused").textContent) > 4 &&
				Number(document.querySelector("#address [data-remaining]").textContent) <= 1 &&
				document.querySelector("#address .bar i").getBoundingClientRect().width < document.querySelector("#address .bar").clientWidth / 8`)
			drained := sees(o, "address")
			assert.Equal(t, "30", drained.Limit)
			assert.Contains(t, drained.Note, "full again in")
			assert.Contains(t, browsertest.Eval[string](o, `document.getElementById("log").textContent`), `429 refused"address";r=0;t=11 s`)
			assert.NotEqual(t, "full", drained.Level)
			o.Shoot(name + "-drained")
			o.Click("keep")

			// Without requests it comes back.
			o.Until(`Number(document.querySelector("#address [data-remaining]").textContent) >= 4 &&
				document.querySelector("#address .bar i").getBoundingClientRect().width > document.querySelector("#address .bar").clientWidth / 6`)

			// With a key both limits count, and the key's is the smaller.
			o.Click("with-key")
			o.Until(`document.querySelector("#key [data-remaining]").textContent === "12"`)
			o.Click("one")
			o.Until(`document.querySelector("#key [data-remaining]").textContent === "11"`)
			o.Shoot(name + "-key")

			o.Fits(v.Width)
			o.Quiet()
		})
	}
}
