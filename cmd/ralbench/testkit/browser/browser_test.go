package browser

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const page = `<!doctype html><html><title>tested</title><link rel="icon" href="data:,">
<button id="b" onclick="this.textContent = 'clicked'">click</button><div id="wide">wide</div>
<script>setTimeout(() => { document.documentElement.dataset.drawn = "yes" }, 50)</script>`

// serve serves the page, and with it things that a page should not need.
func serve(t *testing.T) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /page/{$}", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, page) })
	mux.HandleFunc("GET /page/refused", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) })
	mux.HandleFunc("GET /elsewhere", func(http.ResponseWriter, *http.Request) {})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL + "/page/"
}

func TestViewsInABrowser(t *testing.T) {
	url, b := serve(t), Start(t)
	for _, v := range []View{{Scheme: "light", Width: 1100, Height: 900}, {Scheme: "dark", Width: 360, Height: 740}} {
		t.Run(v.Scheme, func(t *testing.T) {
			o := b.Open(t, url, v)
			assert.True(t, Eval[bool](o, fmt.Sprintf(`matchMedia("(prefers-color-scheme: %s)").matches`, v.Scheme)))
			assert.Equal(t, "yes", Eval[string](o, `document.documentElement.dataset.drawn`), "it was waited for")
			o.Click("b")
			o.Until(`document.getElementById("b").textContent === "clicked"`)
			Eval[any](o, `(fetch("refused").then(() => fetch("data:,")).then(() => { document.title = "asked" }), 0)`) // no faults
			o.Until(`document.title === "asked"`)

			folder := t.TempDir()
			t.Setenv("SCREENSHOTS", folder)
			o.Shoot("picture")
			assert.FileExists(t, filepath.Join(folder, "picture.png"))
			o.Quiet()
		})
	}
	t.Run("no scripts", func(t *testing.T) {
		o := b.Open(t, url, View{Scheme: "light", Width: 1100, Height: 900, NoScript: true})
		assert.False(t, Eval[bool](o, `"drawn" in document.documentElement.dataset`))
	})
}

// failing records failures and goes on.
type failing struct {
	testing.TB
	said []string
}

func (f *failing) Errorf(format string, args ...any) {
	f.said = append(f.said, fmt.Sprintf(format, args...))
}

func TestFaultsInABrowser(t *testing.T) {
	url, b := serve(t), Start(t)
	for _, c := range []struct{ script, said string }{
		{`console.error("a word")`, "a word"},
		{`setTimeout(() => { throw new Error("thrown") })`, "thrown"},
		{`setTimeout(() => alert("a question"))`, "a question"},
		{`fetch("missing")`, "404"},
		{`fetch("/elsewhere")`, "/elsewhere"},
		{`document.getElementById("wide").style.width = "1200px"`, "scrolled sideways"},
	} {
		t.Run(c.script, func(t *testing.T) {
			o := b.Open(t, url, View{Scheme: "light", Width: 1100, Height: 900})
			f := &failing{TB: t}
			o.t = f
			check := func() string {
				f.said = nil
				o.Quiet()
				if c.said == "scrolled sideways" {
					o.Fits(1100)
				}
				return fmt.Sprint(f.said)
			}
			require.Equal(t, "[]", check())
			Eval[any](o, `(`+c.script+`, 0)`)
			require.Eventually(t, func() bool { return check() != "[]" }, time.Minute, 10*time.Millisecond)
			assert.Contains(t, check(), c.said)
		})
	}
}

func TestMissingBrowserIsAnErrorWithAdvice(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	there := filepath.Join(t.TempDir(), "browser")
	require.NoError(t, os.WriteFile(there, nil, 0o700))
	t.Setenv("CHROMIUM", there)
	path, err := find()
	require.NoError(t, err)
	assert.Equal(t, there, path)

	t.Setenv("CHROMIUM", "")
	if path, err = find(); err == nil {
		assert.Contains(t, path, "/Applications/", "all others are in PATH")
	} else {
		assert.ErrorContains(t, err, "run tools/need chromium")
	}
}
