package browser

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	devlog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	devpage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// View is the size and color scheme under which a page is shown.
type View struct {
	Scheme        string // "light" or "dark"
	Width, Height int64  // in pixels; below 600 it is a phone
	NoScript      bool
}

// Tab is a page in its own tab. A failure ends the test that opened it.
type Tab struct {
	t   testing.TB
	ctx context.Context

	mu        sync.Mutex // held for all below
	problems  []string   // errors on the console, and dialogs
	elsewhere []string   // requested URLs that are not below the page's address
}

// Open opens a page until the test ends. It waits until its root has data-drawn="yes", unless
// NoScript.
func (b Browser) Open(t testing.TB, url string, view View) *Tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(b.ctx)
	t.Cleanup(cancel)
	tab := &Tab{t: t, ctx: ctx}
	require.NoError(t, chromedp.Listen(ctx, func(event any) { tab.listen(url, event) }))
	call(tab, network.Enable, network.EnableParams{})
	call(tab, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: view.Scheme}},
	})
	call(tab, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: view.Width, Height: view.Height, DeviceScaleFactor: 1, Mobile: view.Width < 600,
	})
	call(tab, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: view.NoScript})
	tab.Do(chromedp.Navigate(url))
	if !view.NoScript {
		tab.Until(`document.documentElement.dataset.drawn === "yes"`)
	}
	return tab
}

func (o *Tab) listen(url string, event any) {
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
		if object := e.ExceptionDetails.Exception; object != nil {
			text += " " + object.Description
		}
		o.problems = append(o.problems, text)
	case *devlog.EventEntryAdded:
		// Browsers report each 429 by themselves.
		if !strings.Contains(e.Entry.Text, "status of 429") {
			o.problems = append(o.problems, fmt.Sprintf("%s: %s", e.Entry.Level, e.Entry.Text))
		}
	case *devpage.EventJavascriptDialogOpening:
		o.problems = append(o.problems, "a dialog: "+e.Message)
	case *network.EventRequestWillBeSent:
		if !strings.HasPrefix(e.Request.URL, url) && !strings.HasPrefix(e.Request.URL, "data:") {
			o.elsewhere = append(o.elsewhere, e.Request.URL)
		}
	}
}

func call[P, R any](tab *Tab, command cdp.Command[P, R], params P) {
	tab.t.Helper()
	_, err := chromedp.Call(tab.ctx, command, params)
	require.NoError(tab.t, err)
}

// Do runs the steps. If they fail, it reports the problems of the page.
func (o *Tab) Do(steps ...chromedp.Action[chromedp.Void]) {
	o.t.Helper()
	err := chromedp.Do(o.ctx, steps...)
	problems, _ := o.noted()
	require.NoError(o.t, err, "%v", problems)
}

// Until waits until a JavaScript condition holds in the page.
func (o *Tab) Until(condition string) {
	o.t.Helper()
	o.Do(chromedp.Poll[chromedp.Void](condition, chromedp.WithPollingTimeout(patience)))
}

// Click clicks on the element of that id, wherever it is.
func (o *Tab) Click(id string) {
	o.t.Helper()
	Eval[any](o, fmt.Sprintf(`(document.getElementById(%q).click(), 0)`, id))
}

// Eval evaluates a script in the page.
func Eval[T any](tab *Tab, script string) T {
	tab.t.Helper()
	v, err := chromedp.Run(tab.ctx, chromedp.Evaluate[T](script))
	require.NoError(tab.t, err)
	return v
}

// Shoot saves a picture of the whole page in the folder SCREENSHOTS, if that is set.
func (o *Tab) Shoot(name string) { o.shoot(name, chromedp.FullScreenshot(100)) }

// ShootScreen is Shoot for the part of the page that is in view.
func (o *Tab) ShootScreen(name string) { o.shoot(name, chromedp.CaptureScreenshot()) }

func (o *Tab) shoot(name string, how chromedp.Action[[]byte]) {
	o.t.Helper()
	folder := os.Getenv("SCREENSHOTS")
	if folder == "" {
		return
	}
	picture, err := chromedp.Run(o.ctx, how)
	require.NoError(o.t, err)
	require.NoError(o.t, os.WriteFile(filepath.Join(folder, name+".png"), picture, 0o644))
}

// Quiet checks that the page had no problems and requested nothing from elsewhere.
func (o *Tab) Quiet() {
	o.t.Helper()
	problems, elsewhere := o.noted()
	assert.Empty(o.t, problems)
	assert.Empty(o.t, elsewhere, "it asks for things from elsewhere")
}

// Fits checks that a page of that width in pixels need not be scrolled sideways.
func (o *Tab) Fits(width int64) {
	o.t.Helper()
	assert.LessOrEqual(o.t, Eval[int64](o, `document.documentElement.scrollWidth`), width, "it has to be scrolled sideways")
}

func (o *Tab) noted() (problems, elsewhere []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.problems, o.elsewhere
}
