// Package browser looks at pages in tests, by a headless Chromium.
//
// Start reading at [Start].
package browser

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// For slow, busy machines: a test that waits so long has failed.
const (
	lifetime = 8 * time.Minute // of a browser
	patience = 2 * time.Minute // until something shows on a page
)

type Browser struct{ ctx context.Context }

// Start starts a browser, which ends with the test. Without a browser the test fails; under -short
// it is skipped.
func Start(t testing.TB) Browser {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a browser")
	}
	path, err := find()
	require.NoError(t, err)
	options := []chromedp.ExecAllocatorOption{
		chromedp.ExecPath(path),
		chromedp.UserDataDir(t.TempDir()),
		chromedp.WSURLReadTimeout(lifetime),
		chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck, chromedp.NoSandbox, chromedp.Headless, chromedp.DisableGPU,
	}
	for _, flag := range []string{"disable-quic", "disable-background-networking", "disable-component-update", "disable-sync", "disable-dev-shm-usage", "hide-scrollbars"} {
		options = append(options, chromedp.Flag(flag, true))
	}
	ctx, cancel := context.WithTimeout(context.Background(), lifetime)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	require.NoError(t, chromedp.Do(ctx), "the browser does not start")
	return Browser{ctx}
}

func find() (path string, err error) {
	for _, name := range []string{
		os.Getenv("CHROMIUM"), "chromium", "chromium-browser", "google-chrome", "google-chrome-stable",
		"/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
	} {
		if path, err := exec.LookPath(name); name != "" && err == nil {
			return path, nil
		}
	}
	return "", errors.New("the tests of pages need Chromium or Chrome: run tools/need chromium, or (as root on Debian) apt-get install chromium, or set CHROMIUM to its path")
}
