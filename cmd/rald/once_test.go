package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// nginx asks for /pages/ and again for its index.
func TestInternalRedirectCountsOnceBehindProxies(t *testing.T) {
	if testing.Short() {
		t.Skip("nginx is a program of others")
	}
	dir, pages := t.TempDir(), t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(pages, "pages"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(pages, "pages", "index.html"), []byte("body"), 0o600))
	for once, passes := range map[string]int{"": 5, "once: X-Original-Id\n": 10} {
		text := "proxy: nginx\n" + once + "rules:\n  - {match: /, limit: \"funnel 10, 1/h\", key: address}\n"
		require.NoError(t, os.WriteFile(filepath.Join(dir, "check.yaml"), []byte(text), 0o600))
		check := freeAddr(t)
		start(t, "-state", "none", "-check-listen", check, dir)
		s := nginx(t, check, strings.Replace(nginxConfig(t), "    location / {\n",
			"    location /pages/ {\n        auth_request /_limit;\n        error_page   403 = @limited;\n        root         "+pages+";\n    }\n    location / {\n", 1))
		passed := 0
		for s.get(t, "/pages/") == http.StatusOK {
			passed++
		}
		assert.Equal(t, passes, passed, once)
	}
}
