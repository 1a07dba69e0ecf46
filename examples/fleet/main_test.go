package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/cmd/ralbench/testkit/browser"
	"github.com/ral-limiter/ral/fleet"
	"github.com/ral-limiter/ral/internal/testkit/must"
)

// patience is for slow and busy machines.
const patience = 5 * time.Minute

// begin starts a fleet that ends with the test.
func begin(t *testing.T, s settings) *stage {
	t.Helper()
	config := must.Get(s.config())
	g := must.Get(open(t.Context(), s, config, "redis-server"))
	t.Cleanup(func() { assert.NoError(t, g.close()) })
	return g
}

// until waits for a new sample in which a condition holds for all servers.
func (g *stage) until(t *testing.T, what string, holds func(answers) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for seen := len(g.state(-1).Samples); ctx.Err() == nil; {
		time.Sleep(tick / 5) // wall: between two looks
		s := g.state(-1).Samples
		if len(s) == 0 || s[len(s)-1].Seq < seen {
			continue
		}
		all := true
		for _, each := range s[len(s)-1].Servers {
			all = all && holds(each)
		}
		if all {
			return
		}
	}
	t.Fatalf("%s: not within %v; it is %+v", what, patience, g.state(-1))
}

// by reports whether a server answers in only one way.
func by(way int) func(answers) bool {
	return func(a answers) bool {
		for i := range ways {
			if n := a.Admitted[i] + a.Refused[i]; i == way && n == 0 || i != way && n > 0 {
				return false
			}
		}
		return true
	}
}

// Redis and a server stop, and the load moves. Redis and shares each keep the limit.
func TestTheLimitHolds(t *testing.T) {
	const exact, leased, local = 0, 1, 2
	for mode, way := range map[string]int{"exact": exact, "leased": leased} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			g := begin(t, settings{Mode: mode, Outage: "share", Limit: "funnel 300, 300/10s", Budget: 2 * time.Second})
			require.NoError(t, g.load.set(plan{"even", 600}))
			g.until(t, "all answer", by(way))
			require.NoError(t, g.load.set(plan{"skewed", 600}))

			require.NoError(t, g.redisDo("kill"))
			assert.ErrorContains(t, g.redisDo("pause"), `"pause" cannot be done to a Redis that is killed`)
			g.until(t, "each has its share", by(local))
			require.NoError(t, g.redisDo("start"))
			g.until(t, "Redis is back", by(way))
			require.NoError(t, g.redisDo("pause"))
			g.until(t, "each has its share again", by(local))
			require.NoError(t, g.redisDo("resume"))
			require.NoError(t, g.load.set(plan{"shifting", 600}))
			g.until(t, "Redis goes on", by(way))

			require.NoError(t, g.serverDo(2, "stop"))
			assert.ErrorContains(t, g.serverDo(2, "stop"), `"stop" cannot be done`)
			require.NoError(t, g.serverDo(2, "start"))
			g.until(t, "all answer again", by(way))
			total := g.state(-1).Total
			assert.Positive(t, total.Shares.Admitted)
			assert.LessOrEqual(t, total.Shares.Admitted, total.Shares.Most)
			assert.LessOrEqual(t, total.Redis.Admitted, total.Redis.Most)
			assert.Equal(t, total.Admitted, total.Redis.Admitted+total.Shares.Admitted)
		})
	}
}

func TestBadFlagIsNamedByTheError(t *testing.T) {
	for want, args := range map[string][]string{
		"there is no no-such-redis here":           {"-redis", "no-such-redis"},
		`-mode "fast" is neither exact nor leased`: {"-mode", "fast"},
		`-outage "none" is none of share, open`:    {"-outage", "none"},
		"capacity is 0, want 1 or more":            {"-limit", "funnel 0, 1/s"},
		`-limit "window 5/s" is not a funnel`:      {"-limit", "window 5/s"},
		"nowhere":                                  {"-addr", "nowhere"},
		`Budget`:                                   {"-budget", "-1s"},
	} {
		assert.ErrorContains(t, run(t.Context(), append([]string{"-addr", "127.0.0.1:0"}, args...), io.Discard, io.Discard), want)
	}
}

// start runs the command, and returns its page and a function to end it.
func start(t *testing.T) (page string, end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, []string{"-addr", "127.0.0.1:0", "-budget", "200ms"}, in, io.Discard) }()
	line := make([]byte, 200)
	n, err := out.Read(line)
	require.NoError(t, err)
	return regexp.MustCompile(`http://\S+/`).FindString(string(line[:n])), func() {
		cancel()
		assert.NoError(t, <-ended)
	}
}

// Other sites' pages have no effect, and each server has its metrics.
func TestRoutesRefuseOtherSitesAndBadForms(t *testing.T) {
	t.Parallel()
	page, end := start(t)
	defer end()
	r := must.Get(http.NewRequest(http.MethodPost, page+"redis?do=kill", nil))
	r.Header.Set("Origin", "http://elsewhere.example")
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	assert.Equal(t, http.StatusForbidden, answer.StatusCode)
	for path, form := range map[string]url.Values{
		"server": {"number": {"4"}, "do": {"stop"}}, "load": {"pattern": {"wild"}, "demand": {"3"}}, "redis": {"do": {"dance"}},
	} {
		answer, err := http.PostForm(page+path, form)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		assert.Equal(t, http.StatusConflict, answer.StatusCode, path)
	}
	answer, err = http.Get(page + "metrics/3")
	require.NoError(t, err)
	text := must.Get(io.ReadAll(answer.Body))
	require.NoError(t, answer.Body.Close())
	assert.Contains(t, string(text), "ral_fleet_")
}

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
