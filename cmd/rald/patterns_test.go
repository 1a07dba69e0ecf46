package main

import (
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// patterns are backends that find their handlers by patterns which end in $: it also matches before
// a final line end. The program gets its port as its last argument.
var patterns = map[string]struct {
	file, text string
	program    func(file, port string) []string
}{
	"Starlette": {"starlette_app.py", `
import sys, uvicorn
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
async def login(request):
    return PlainTextResponse(await request.body())
uvicorn.run(Starlette(routes=[Route("/login", login, methods=["POST"])]), host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
`, python},
	"Bottle": {"bottle_app.py", `
import sys, bottle
@bottle.post("/<page:re:login>")
def login(page):
    return bottle.request.body.read()
bottle.run(host="127.0.0.1", port=int(sys.argv[1]), quiet=True)
`, python},
	"PHP": {"router.php", `<?php
if (preg_match('#^/login$#', rawurldecode($_SERVER['REQUEST_URI']))) {
	echo file_get_contents('php://input');
} else {
	http_response_code(404);
}
`, func(file, port string) []string { return []string{"php", "-S", "127.0.0.1:" + port, file} }},
}

// python returns a command of the Python that has the modules: Debian's may be hidden by another.
func python(file, port string) []string {
	program := "python3"
	if exec.Command(program, "-c", "import starlette, uvicorn, bottle").Run() != nil {
		program = "/usr/bin/python3"
	}
	return []string{program, file, port}
}

// A backend serves /login%0a as /login. It gets no request with an escaped control character.
//
// Promise: No escaped control character leads past a rule of the HTTP check, behind real nginx and Caddy, to Starlette, Bottle or PHP.
func TestPatternsOfBackendsBehindProxies(t *testing.T) {
	needs(t, "nginx, Caddy, Python and PHP")
	rules := "rules:\n  - {match: POST /login, limit: 'funnel 2, 1/365d', name: login, key: everybody}\n"
	for name, b := range patterns {
		t.Run(name, func(t *testing.T) {
			checkAddr := freeAddr(t)
			_, port, _ := strings.Cut(checkAddr, ":")
			args := b.program(filepath.Join(directory(t, b.file, b.text), b.file), port)
			backend := &server{addr: checkAddr}
			backend.run(t, exec.Command(args[0], args[1:]...))
			backend.untilListens(t)
			status, _ := (&site{addr: checkAddr}).post(t, "/login%0a")
			require.Equal(t, http.StatusOK, status, "the backend itself")

			to := strings.NewReplacer("app:80", checkAddr, "127.0.0.1:3000", checkAddr)
			for kind, open := range map[string]func(check string) *site{
				"nginx": func(check string) *site { return nginx(t, check, to.Replace(deployedText(t, "nginx.conf"))) },
				"caddy": func(check string) *site { return caddy(t, check, to.Replace(deployedText(t, "Caddyfile"))) },
			} {
				_, check := startChecked(t, "check.yaml", "proxy: "+kind+"\n"+rules)
				s := open(check)
				for _, want := range []int{http.StatusOK, http.StatusOK, http.StatusTooManyRequests} {
					status, _ := s.post(t, "/login")
					require.Equal(t, want, status, kind)
				}
				for c := range 0x80 {
					if c >= ' ' && c != 0x7f {
						continue
					}
					for _, path := range []string{"/login%%%02x", "/login%%%02X", "/login/%%%02x", "/%%%02xlogin"} {
						path = fmt.Sprintf(path, c)
						status, _ := s.post(t, path)
						assert.Contains(t, []int{http.StatusBadRequest, http.StatusForbidden}, status, "%s: %s", kind, path)
					}
				}
			}
		})
	}
}
