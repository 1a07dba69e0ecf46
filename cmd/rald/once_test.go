package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// nginx asks for /pages/ and again for its index.
func TestInternalRedirectCountsOnceBehindProxies(t *testing.T) {
	needs(t, "nginx")
	pages := directory(t, "pages/index.html", "body")
	config := strings.Replace(deployedText(t, "nginx.conf"), "    location / {\n",
		"    location /pages/ {\n        auth_request /_limit;\n        error_page   403 = @limited;\n        root         "+pages+";\n    }\n    location / {\n", 1)
	for once, passes := range map[string]int{"": 5, "once: X-Original-Id\n": 10} {
		_, check := startChecked(t, "check.yaml", "proxy: nginx\n"+once+"rules:\n  - {match: /, limit: \"funnel 10, 1/h\", key: address}\n")
		s := nginx(t, check, config)
		status, passed := http.StatusOK, -1
		for ; status == http.StatusOK; passed++ {
			status, _ = fetch(t, http.DefaultClient, "http://"+s.addr+"/pages/")
		}
		assert.Equal(t, passes, passed, once)
	}
}
