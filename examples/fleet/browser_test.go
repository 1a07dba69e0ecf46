package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	devlog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// browserPath finds the browser. Without one the tests fail: a page that nobody has looked
// at is not tested.
func browserPath(t *testing.T) string {
	t.Helper()
	for _, name := range []string{
		os.Getenv("CHROMIUM"), "chromium", "chromium-browser", "google-chrome", "google-chrome-stable",
		"/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
	} {
		if path, err := exec.LookPath(name); name != "" && err == nil {
			return path
		}
	}
	t.Fatal("the tests of the page need Chromium or Chrome: run tools/need-chromium, or set CHROMIUM to its path")
	return ""
}

func newBrowser(t *testing.T) context.Context {
	t.Helper()
	options := []chromedp.ExecAllocatorOption{
		chromedp.ExecPath(browserPath(t)),
		chromedp.UserDataDir(t.TempDir()),
		chromedp.WSURLReadTimeout(2 * patience),
		chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck, chromedp.NoSandbox, chromedp.Headless, chromedp.DisableGPU,
	}
	for _, flag := range []string{"disable-quic", "disable-background-networking", "disable-component-update", "disable-sync", "disable-dev-shm-usage"} {
		options = append(options, chromedp.Flag(flag, true))
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	require.NoError(t, chromedp.Do(ctx), "the browser does not start")
	return ctx
}

// tab is the page as a visitor sees it.
type tab struct {
	ctx      context.Context
	mu       sync.Mutex
	problems []string // errors on the console
	strange  []string // requests to elsewhere
}

func openTab(t *testing.T, browser context.Context, url, scheme string, width, height int64) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(browser)
	t.Cleanup(cancel)
	o := &tab{ctx: ctx}
	require.NoError(t, chromedp.Listen(ctx, func(event any) {
		o.mu.Lock()
		defer o.mu.Unlock()
		switch e := event.(type) {
		case *runtime.EventConsoleAPICalled:
			o.problems = append(o.problems, fmt.Sprintf("console.%s", e.Type))
		case *runtime.EventExceptionThrown:
			o.problems = append(o.problems, e.ExceptionDetails.Text)
		case *devlog.EventEntryAdded:
			o.problems = append(o.problems, fmt.Sprintf("%s: %s", e.Entry.Level, e.Entry.Text))
		case *network.EventRequestWillBeSent:
			if !strings.HasPrefix(e.Request.URL, url) && !strings.HasPrefix(e.Request.URL, "data:") {
				o.strange = append(o.strange, e.Request.URL)
			}
		}
	}))
	call(t, ctx, network.Enable, network.EnableParams{})
	call(t, ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	call(t, ctx, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: width, Height: height, DeviceScaleFactor: 1, Mobile: width < 600,
	})
	o.do(t, chromedp.Navigate(url))
	o.until(t, `document.documentElement.dataset.drawn === "yes"`)
	return o
}

func call[P, R any](t *testing.T, ctx context.Context, command cdp.Command[P, R], params P) {
	t.Helper()
	_, err := chromedp.Call(ctx, command, params)
	require.NoError(t, err)
}

func (o *tab) do(t *testing.T, steps ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	err := chromedp.Do(o.ctx, steps...)
	o.mu.Lock()
	defer o.mu.Unlock()
	require.NoError(t, err, "%v", o.problems)
}

// until waits until a condition holds in the page.
func (o *tab) until(t *testing.T, condition string) {
	t.Helper()
	o.do(t, chromedp.Poll[chromedp.Void](condition, chromedp.WithPollingTimeout(patience)))
}

func (o *tab) click(t *testing.T, id string) {
	t.Helper()
	eval[any](t, o, fmt.Sprintf(`(document.getElementById(%q).click(), 0)`, id))
}

func eval[T any](t *testing.T, o *tab, script string) T {
	t.Helper()
	v, err := chromedp.Run(o.ctx, chromedp.Evaluate[T](script))
	require.NoError(t, err)
	return v
}

// shoot keeps a picture in the folder SCREENSHOTS, if that is set.
func (o *tab) shoot(t *testing.T, name string) {
	t.Helper()
	folder := os.Getenv("SCREENSHOTS")
	if folder == "" {
		return
	}
	picture, err := chromedp.Run(o.ctx, chromedp.FullScreenshot(100))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(folder, name+".png"), picture, 0o644))
}

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
	browser := newBrowser(t)
	for _, v := range []struct {
		name, scheme  string
		width, height int64
	}{{"desktop-light", "light", 1280, 1000}, {"phone-dark", "dark", 360, 740}} {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			o := openTab(t, browser, begin(t, "-budget", "200ms").url, v.scheme, v.width, v.height)
			assert.Equal(t, "100 a second, in bursts of up to 100", eval[string](t, o, text("#limit")))
			decided := rate("exact", "passed") + " > 0 && " + rate("exact", "refused") + " > 0 && " +
				rate("local", "passed") + " + " + rate("local", "refused") + ` === 0 && ` + text("#redis .badge") + ` === "up"`
			o.until(t, decided)
			o.until(t, `document.querySelectorAll('#chart path[data-way="exact"]').length > 0`)
			assert.Contains(t, eval[string](t, o, text("#what")), "Redis decides")

			o.click(t, "redis-kill")
			o.until(t, text("#redis .badge")+` === "killed" && `+rate("local", "passed")+" > 0 && "+rate("local", "refused")+" > 0 && "+
				rate("exact", "passed")+" === 0 && "+rate("exact", "refused")+" === 0")
			o.until(t, `document.querySelectorAll("#chart rect.out").length > 0 && document.querySelectorAll('#chart path[data-way="local"]').length > 0`)
			assert.Contains(t, eval[string](t, o, text("#what")), "Each server keeps a third of the limit by itself")
			assert.Equal(t, "Bring Redis back", eval[string](t, o, text("#redis-kill")))
			assert.True(t, eval[bool](t, o, `document.getElementById("redis-pause").disabled`))
			assert.Contains(t, eval[string](t, o, text("#notes")), "Redis was killed (SIGKILL).")
			o.until(t, text("#notes")+`.includes("outage began")`)
			o.shoot(t, v.name+"-outage")

			o.click(t, "redis-kill")
			o.until(t, decided)
			o.until(t, text("#notes")+`.includes("outage ended") && `+text("#notes")+`.includes("to Redis that it had let pass without")`)
			assert.Equal(t, "Kill Redis", eval[string](t, o, text("#redis-kill")))

			// What a killed server does not admit, the others do.
			o.click(t, "server-2-kill")
			o.until(t, text("#server-2 .badge")+` === "killed" && `+text("#server-2 [data-share]")+` === "0 %" && `+
				rate("lost", "refused")+" > 0 && "+rate("exact", "passed")+" > 60")
			o.shoot(t, v.name+"-server")
			o.click(t, "server-2-kill")
			o.until(t, text("#server-2 .badge")+` === "up" && `+rate("lost", "refused")+" === 0 && "+text("#server-2 [data-admitted]")+`[0] !== "0"`)

			o.click(t, "redis-pause")
			o.until(t, text("#redis .badge")+` === "paused" && `+rate("local", "passed")+" > 0")
			o.click(t, "redis-pause")
			o.until(t, decided)

			eval[any](t, o, `(document.querySelector("#pattern [value=skewed]").click(), 0)`)
			o.until(t, `parseInt(document.querySelector("#server-1 [data-asked]").textContent) > 4 * parseInt(document.querySelector("#server-3 [data-asked]").textContent)`)
			eval[any](t, o, `(document.querySelector("#demand [value='0.5']").click(), 0)`)
			o.until(t, `parseInt(document.getElementById("sent").textContent) < 60`)
			o.shoot(t, v.name+"-end")

			assert.LessOrEqual(t, eval[float64](t, o, `document.documentElement.scrollWidth`), float64(v.width), "it has to be scrolled sideways")
			o.mu.Lock()
			defer o.mu.Unlock()
			assert.Empty(t, o.problems)
			assert.Empty(t, o.strange, "it asks for things from elsewhere")
		})
	}
}

// When the command has ended, the page says so.
func TestPageWithoutTheCommand(t *testing.T) {
	t.Parallel()
	c := begin(t)
	o := openTab(t, newBrowser(t), c.url, "light", 1100, 900)
	c.end(t, syscall.SIGINT)
	o.until(t, text("#trouble")+`.startsWith("The command does not answer")`)
}
