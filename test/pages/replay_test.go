package pages

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/cmd/ralbench/testkit/browser"
)

// accessLog returns a day of 240 clients, most of them by day, and three that come in a long burst each.
func accessLog() string {
	random := rand.New(rand.NewPCG(1, 2))
	var seconds []int
	lines := map[int][]string{}
	add := func(seconds float64, client string) {
		if second := int(seconds); second < 86_400 {
			lines[second] = append(lines[second], client)
		}
	}
	for client := range 240 {
		for range 20 + random.IntN(150) {
			begin := random.Float64() * 86_400
			if random.Float64() > 0.2+max(0, -math.Cos(begin/86_400*2*math.Pi)) {
				continue
			}
			for n := range 1 + int(4*random.ExpFloat64()) {
				add(begin+float64(n)*random.Float64(), fmt.Sprint("192.0.2.", client))
			}
		}
	}
	for client, burst := range map[string]struct{ hour, requests, rate float64 }{"203.0.113.7": {10.2, 5400, 25}, "203.0.113.9": {15.3, 2100, 18}, "198.51.100.4": {20.1, 1800, 40}} {
		for n := range int(burst.requests) {
			add(burst.hour*3600+float64(n)/burst.rate, client)
		}
	}
	for second := range lines {
		seconds = append(seconds, second)
	}
	slices.Sort(seconds)
	var text strings.Builder
	for _, second := range seconds {
		stamp := time.Unix(1_795_824_000+int64(second), 0).UTC().Format("02/Jan/2006:15:04:05 -0700")
		for _, client := range lines[second] {
			fmt.Fprintf(&text, "%s - - [%s] \"GET / HTTP/1.1\" 200 612 \"-\" \"-\"\n", client, stamp)
		}
	}
	return text.String()
}

// With SCREENSHOTS the test makes the pictures of docs/replay.md: make pictures.
//
// Promise: The pages of `ral replay` and `ral suggest` fit a laptop and a phone, in light and dark schemes, and load nothing.
func TestReplayInABrowser(t *testing.T) {
	chromium, dir := browser.Start(t), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "access.log"), []byte(accessLog()), 0o600))
	ral := filepath.Join(dir, "ral")
	out, err := exec.Command("go", "build", "-C", "../../cmd/ral", "-o", ral, ".").CombinedOutput()
	require.NoError(t, err, string(out))
	for name, c := range map[string]struct {
		args  []string
		lines int // of a chart
	}{
		"replay": {[]string{"--limit", "funnel 50, 10/s"}, 24}, "suggest": {[]string{"--refuse-at-most", "3 keys", "--rate", "5/s", "--rate", "10/s", "--rate", "20/s"}, 5},
	} {
		page := filepath.Join(dir, name+".html")
		cmd := exec.Command(ral, append([]string{name, "access.log", "--html", page}, c.args...)...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		for view, v := range map[string]browser.View{
			"light": {Scheme: "light", Width: 860, Height: 1080}, "dark": {Scheme: "dark", Width: 860, Height: 1080}, "phone-dark": {Scheme: "dark", Width: 400, Height: 800},
		} {
			t.Run(name+" "+view, func(t *testing.T) {
				o := chromium.Open(t, "file://"+page, v)
				assert.GreaterOrEqual(t, browser.Eval[int](o, `document.querySelectorAll("svg g").length`), c.lines)
				assert.True(t, browser.Eval[bool](o, `[...document.querySelectorAll("rect.marked")].some((e) => e.getBoundingClientRect().width > 20)`))
				assert.Zero(t, browser.Eval[int](o, `performance.getEntriesByType("resource").length`), "it loads nothing")
				o.Fits(v.Width)
				if view != "phone-dark" {
					o.ShootScreen(name + "-" + view)
				}
				o.Quiet()
			})
		}
	}
}
