package main

import (
	"context"
	"fmt"
	"net/url"
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
	devpage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// patience is for slow machines that do much else: a test that has to wait so long
// has failed.
const patience = 4 * time.Minute

// browserPath finds the browser. Without one the tests fail: a page that nobody
// has looked at is not tested.
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
	t.Fatal("the tests of the page need Chromium or Chrome: run make browser, or (as root on Debian) apt-get install chromium, or set CHROMIUM to its path")
	return ""
}

// browser is a running headless browser.
type browser struct{ ctx context.Context }

func newBrowser(t *testing.T) browser {
	t.Helper()
	options := []chromedp.ExecAllocatorOption{
		chromedp.ExecPath(browserPath(t)),
		chromedp.UserDataDir(t.TempDir()),
		chromedp.WSURLReadTimeout(patience),
		chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck, chromedp.NoSandbox, chromedp.Headless, chromedp.DisableGPU,
	}
	for _, flag := range []string{"disable-quic", "disable-background-networking", "disable-component-update", "disable-sync", "disable-dev-shm-usage", "hide-scrollbars"} {
		options = append(options, chromedp.Flag(flag, true))
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	require.NoError(t, chromedp.Do(ctx), "the browser does not start")
	return browser{ctx}
}

// view is how somebody looks at the page.
type view struct {
	scheme        string // light or dark
	width, height int64
	noScript      bool
}

// tab is the page in a tab of its own.
type tab struct {
	ctx      context.Context
	mu       sync.Mutex
	problems []string // errors on the console
	requests []string // what was asked for besides the page itself
}

// open opens the file and waits until it is drawn.
func (b browser) open(t *testing.T, file string, v view) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(b.ctx)
	t.Cleanup(cancel)
	o := &tab{ctx: ctx}
	address := (&url.URL{Scheme: "file", Path: file}).String()
	require.NoError(t, chromedp.Listen(ctx, func(event any) {
		o.mu.Lock()
		defer o.mu.Unlock()
		switch e := event.(type) {
		case *runtime.EventConsoleAPICalled:
			var words []string
			for _, arg := range e.Args {
				words = append(words, arg.Description+string(arg.Value))
			}
			o.problems = append(o.problems, fmt.Sprintf("console.%s: %s", e.Type, strings.Join(words, " ")))
		case *runtime.EventExceptionThrown:
			text := e.ExceptionDetails.Text
			if x := e.ExceptionDetails.Exception; x != nil {
				text += " " + x.Description
			}
			o.problems = append(o.problems, text)
		case *devlog.EventEntryAdded:
			o.problems = append(o.problems, fmt.Sprintf("%s: %s", e.Entry.Level, e.Entry.Text))
		case *devpage.EventJavascriptDialogOpening:
			o.problems = append(o.problems, "a dialog: "+e.Message)
		case *network.EventRequestWillBeSent:
			if e.Request.URL != address && !strings.HasPrefix(e.Request.URL, "data:") {
				o.requests = append(o.requests, e.Request.URL)
			}
		}
	}))
	call(t, ctx, network.Enable, network.EnableParams{})
	call(t, ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: v.scheme}},
	})
	call(t, ctx, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: v.width, Height: v.height, DeviceScaleFactor: 1, Mobile: v.width < 600,
	})
	call(t, ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: v.noScript})
	o.do(t, chromedp.Navigate(address))
	if !v.noScript {
		o.do(t, chromedp.WaitReady(chromedp.CSS(`html[data-drawn="yes"]`)))
	}
	return o
}

// call gives a command to the tab.
func call[P, R any](t *testing.T, ctx context.Context, command cdp.Command[P, R], params P) {
	t.Helper()
	_, err := chromedp.Call(ctx, command, params)
	require.NoError(t, err)
}

// do does the steps, and tells what the page complained of if they fail.
func (o *tab) do(t *testing.T, steps ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	err := chromedp.Do(o.ctx, steps...)
	problems, _ := o.saidAndAsked()
	require.NoError(t, err, "%v", problems)
}

// eval evaluates a script in the page.
func eval[T any](t *testing.T, o *tab, script string) T {
	t.Helper()
	v, err := chromedp.Run(o.ctx, chromedp.Evaluate[T](script))
	require.NoError(t, err)
	return v
}

// saidAndAsked returns the problems and requests so far.
func (o *tab) saidAndAsked() (problems, requests []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.problems, o.requests
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
