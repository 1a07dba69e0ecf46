package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	devlog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// patience is for slow machines that do much else.
const patience = 2 * time.Minute

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
		chromedp.WSURLReadTimeout(patience),
		chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck, chromedp.NoSandbox, chromedp.Headless, chromedp.DisableGPU,
	}
	for _, flag := range []string{"disable-quic", "disable-background-networking", "disable-component-update", "disable-sync", "disable-dev-shm-usage"} {
		options = append(options, chromedp.Flag(flag, true))
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
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
			// A browser remarks on each 429 by itself.
			if !strings.Contains(e.Entry.Text, "429") {
				o.problems = append(o.problems, fmt.Sprintf("%s: %s", e.Entry.Level, e.Entry.Text))
			}
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
	o.do(t, chromedp.Poll[chromedp.Void](condition, chromedp.WithPollingTimeout(30*time.Second)))
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

// seen is what the page shows of a limit.
type seen struct {
	Who, Note, Level string
	Remaining, Limit string
	Share            float64 // of the bar
}

func (o *tab) sees(t *testing.T, card string) seen {
	t.Helper()
	return eval[seen](t, o, fmt.Sprintf(`(() => {
		const c = document.getElementById(%q), text = (n) => c.querySelector("[data-" + n + "]")?.textContent ?? "";
		const bar = c.querySelector(".bar"), box = bar.getBoundingClientRect();
		return { Who: text("who"), Note: text("note"), Level: c.dataset.level, Remaining: text("remaining"), Limit: text("limit"),
			Share: bar.firstElementChild.getBoundingClientRect().width / box.width };
	})()`, card))
}

// A visitor drains his quota and sees it come back.
func TestPage(t *testing.T) {
	browser := newBrowser(t)
	for _, v := range []struct {
		name, scheme  string
		width, height int64
	}{{"desktop-light", "light", 1100, 900}, {"phone-dark", "dark", 360, 740}} {
		t.Run(v.name, func(t *testing.T) {
			o := openTab(t, browser, start(t), v.scheme, v.width, v.height)
			o.until(t, `document.querySelector("#address .bar i").getBoundingClientRect().width === document.querySelector("#address .bar").clientWidth`)
			full := o.sees(t, "address")
			assert.Equal(t, seen{Who: "127.0.0.1", Note: "full; 3 a second come back", Level: "full", Remaining: "30", Limit: "30", Share: 1}, full)
			assert.Equal(t, "–", o.sees(t, "key").Remaining)
			o.shoot(t, v.name+"-full")

			o.click(t, "ten")
			o.until(t, `document.getElementById("passed").textContent === "10"`)
			o.until(t, `Number(document.querySelector("#address [data-remaining]").textContent) < 26`)
			for range 3 {
				o.click(t, "ten")
			}
			// Who goes on asking holds it near nothing.
			o.click(t, "keep")
			o.until(t, `Number(document.getElementById("refused").textContent) > 4 &&
				Number(document.querySelector("#address [data-remaining]").textContent) <= 1 &&
				document.querySelector("#address .bar i").getBoundingClientRect().width < document.querySelector("#address .bar").clientWidth / 8`)
			drained := o.sees(t, "address")
			assert.Equal(t, "30", drained.Limit)
			assert.Contains(t, drained.Note, "full again in")
			assert.Contains(t, eval[string](t, o, `document.getElementById("log").textContent`), `429 refused"address";r=0;t=11 s`)
			assert.NotEqual(t, "full", drained.Level)
			o.shoot(t, v.name+"-drained")
			o.click(t, "keep")

			// Who stops sees it come back.
			o.until(t, `Number(document.querySelector("#address [data-remaining]").textContent) >= 4 &&
				document.querySelector("#address .bar i").getBoundingClientRect().width > document.querySelector("#address .bar").clientWidth / 6`)

			// With a key both limits count, and the key's is the smaller.
			o.click(t, "with-key")
			o.until(t, `document.querySelector("#key [data-remaining]").textContent === "12"`)
			o.click(t, "one")
			o.until(t, `document.querySelector("#key [data-remaining]").textContent === "11"`)
			o.shoot(t, v.name+"-key")

			assert.LessOrEqual(t, eval[float64](t, o, `document.documentElement.scrollWidth`), float64(v.width), "it has to be scrolled sideways")
			o.mu.Lock()
			defer o.mu.Unlock()
			assert.Empty(t, o.problems)
			assert.Empty(t, o.strange, "it asks for things from elsewhere")
		})
	}
}
