// Package snippets holds the test that compiles the Go snippets of all pages.
package snippets

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const root = "../.."

const ral = "github.com/ral-limiter/ral/"

// packages that snippets may use, by name.
var packages = map[string]string{
	"context": "context", "flag": "flag", "fmt": "fmt", "http": "net/http", "netip": "net/netip", "slog": "log/slog", "time": "time",
	"synctest": "testing/synctest", "testing": "testing",
	"engine": ral + "engine", "fleet": ral + "fleet", "httplimit": ral + "httplimit", "limitfile": ral + "limitfile", "limits": ral + "limits",
	"outgoing": ral + "outgoing", "policy": ral + "policy", "rpclimit": ral + "rpclimit", "single": ral + "single",
	"eventlog": ral + "observe/eventlog", "inspect": ral + "observe/inspect", "metrics": ral + "observe/metrics",
	"ralotel": ral + "observe/ralotel", "ralprom": ral + "observe/ralprom",
	"connectlimit": ral + "rpc/connectlimit", "grpclimit": ral + "rpc/grpclimit",
	"connect": "connectrpc.com/connect", "credentials": "google.golang.org/grpc/credentials", "grpc": "google.golang.org/grpc",
	"metric": "go.opentelemetry.io/otel/metric", "prometheus": "github.com/prometheus/client_golang/prometheus",
	"rueidis": "github.com/redis/rueidis",
	"adaptor": "github.com/gofiber/fiber/v2/middleware/adaptor", "chi": "github.com/go-chi/chi/v5", "echo": "github.com/labstack/echo/v4",
	"fiber": "github.com/gofiber/fiber/v2", "gin": "github.com/gin-gonic/gin",
}

// given declares the reader's own names, by page.
var given = map[string]string{
	"docs/choosing.md": `
		var address netip.Addr; var byAddress *engine.Engine[netip.Addr]; var byUser, limiter *engine.Engine[string]
		var service *engine.Engine[struct{}]; var user, customer, tenant string; var background bool; var mail func(customer, text string)
		var plans interface{ Store(key string, p policy.Policy) }; var small, large policy.Policy; var limit policy.Text`,
	"docs/replay.md": "var limiter *engine.Engine[netip.Addr]",
	"docs/connect.md": `
		var mux *http.ServeMux; var guard *rpclimit.Guard; var shop, url string
		var shopconnect struct {
			NewShopHandler func(string, ...connect.HandlerOption) (string, http.Handler)
			NewShopClient  func(connect.HTTPClient, string, ...connect.ClientOption) any
		}`,
	"docs/fleet.md": `
		var ctx context.Context; var user, tenant, password string; var mux http.Handler; var userOf func(*http.Request) string
		var export func(context.Context) <-chan error`,
	"docs/grpc.md": `var guard *rpclimit.Guard`,
	"docs/httplimit.md": `
		var mux http.Handler; var limiter, addresses, bytes, stricter *engine.Engine[netip.Addr]; var keys, requests, tokens *engine.Engine[string]
		var chiRouter chi.Router; var echoServer *echo.Echo; var ginEngine *gin.Engine; var fiberApp *fiber.App
		var limit *httplimit.Middleware; var options httplimit.Options
		var tenantOf func(*http.Request) string; var estimate, usedBy func(*http.Request) int64`,
	"docs/inflight.md": `
		var ctx context.Context; var mux *http.ServeMux; var completions, export http.Handler; var job, tenant string
		var tenantOf func(*http.Request) string; var work func(ctx context.Context, job string) error`,
	"docs/limits-file.md": `var ctx context.Context; var user string; var limitsOf func(context.Context, []string) (map[string]string, error); var file *limitfile.File; var byUser *limitfile.Limiter[string]; var client rueidis.ClientOption`,
	"docs/metrics.md": `
		var limiter *engine.Engine[string]; var fleetLimiter *fleet.Limiter; var middleware *httplimit.Middleware; var calls *rpclimit.Guard
		var line *outgoing.Line[string]; var feed *single.Limiter; var meter metric.Meter`,
	"docs/operating.md": `var p policy.Policy; var limiter *engine.Engine[string]; var admin *http.ServeMux`,
	"docs/shares.md":    `var ctx context.Context`,
	"docs/outgoing.md": `
		var ctx context.Context; var line *outgoing.Line[string]; var key, target string; var delay time.Duration
		var byAPIKey func(*http.Request) string; var estimate func(*http.Request) int64; var crawlDelay func(string) time.Duration`,
}

// forms are files around a snippet: a list of declarations, statements, an expression, or
// fields of a limit.
var forms = []string{
	"%s", "func _() {\n%s\n}", "func _() error {\n%s\nreturn nil\n}", "func _() bool {\n%s\n}", "var _ = %s", "var _ = httplimit.Limit[netip.Addr]{\n%s\n}",
}

// Promise: Every Go snippet of a page compiles.
func TestSnippetsCompile(t *testing.T) {
	check := newChecker(t)
	found := 0
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if base := d.Name(); d.IsDir() && name != root && (base[0] == '.' && base != ".." || base == "testdata") {
			return filepath.SkipDir
		}
		if filepath.Ext(name) != ".md" {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		page := filepath.ToSlash(strings.TrimPrefix(name, root+"/"))
		for line, snippet := range snippets(string(text)) {
			found++
			assert.NoError(t, check.compile(page, snippet), "%s:%d", page, line)
		}
		return nil
	})
	require.NoError(t, err)
	assert.Greater(t, found, 20)
}

// The checker finds names that packages do not have, wrong types and unknown names of the reader.
func TestFaultsAreFound(t *testing.T) {
	check := newChecker(t)
	require.NoError(t, check.compile("docs/fleet.md", "unused := user"))
	for snippet, want := range map[string]string{
		"policy.Bucket(1, 1, time.Second)":  "undefined: policy.Bucket",
		"policy.Funnel(\"1\", 1, ctx)":      "cannot use \"1\"",
		"limiter.Choke(user)":               "undefined: limiter",
		"if user {":                         "expected",
		"package main\nfunc main() { f() }": "undefined: f",
	} {
		assert.ErrorContains(t, check.compile("docs/fleet.md", snippet), want)
	}
}

// snippets yields the Go snippets of a page, by the number of the line above each.
func snippets(page string) map[int]string {
	all := map[int]string{}
	begun := 0
	for i, line := range strings.Split(page, "\n") {
		switch {
		case strings.HasPrefix(line, "```go"):
			begun = i + 1
		case strings.HasPrefix(line, "```"):
			begun = 0
		case begun > 0:
			all[begun] += line + "\n"
		}
	}
	return all
}

type checker struct {
	set      *token.FileSet
	importer types.Importer
}

// newChecker returns a checker that imports by the export data of the go command.
func newChecker(t *testing.T) *checker {
	t.Helper()
	exports, err := exported()
	require.NoError(t, err)
	set := token.NewFileSet()
	return &checker{set, importer.ForCompiler(set, "gc", func(path string) (io.ReadCloser, error) {
		if exports[path] == "" {
			return nil, fmt.Errorf("no package %s", path)
		}
		return os.Open(exports[path])
	})}
}

// exported returns the files of export data, by the paths of the packages.
var exported = sync.OnceValues(func() (map[string]string, error) {
	args := append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}, slices.Sorted(maps.Values(packages))...)
	cmd := exec.Command("go", args...)
	cmd.Dir = root
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, &problems)
	}
	exports := map[string]string{}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		path, file, _ := strings.Cut(lines.Text(), " ")
		exports[path] = file
	}
	return exports, nil
})

// compile returns nil if a snippet compiles in one of the forms, and otherwise the error of the
// form that it comes nearest to.
func (c *checker) compile(page, snippet string) (nearest error) {
	if strings.HasPrefix(snippet, "package ") {
		return c.check(snippet)
	}
	parses := false
	for _, form := range forms {
		text := "package p\n" + imports(given[page]+"\n"+snippet) + given[page] + "\n" + fmt.Sprintf(form, snippet)
		err := c.check(text)
		var fault types.Error
		switch {
		case err == nil:
			return nil
		case nearest == nil, errors.As(err, &fault) && !parses:
			nearest, parses = err, errors.As(err, &fault)
		}
	}
	return nearest
}

// check compiles a file, except that names may be unused.
func (c *checker) check(text string) error {
	file, err := parser.ParseFile(c.set, "snippet.go", text, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	var first error
	config := types.Config{Importer: c.importer, Error: func(err error) {
		var fault types.Error
		if !errors.As(err, &fault) || !fault.Soft {
			first = errors.Join(first, err)
		}
	}}
	_, _ = config.Check("p", c.set, []*ast.File{file}, nil)
	return first
}

var qualifier = regexp.MustCompile(`\b([a-z]+)\.[A-Z]`)

// imports declares the packages that a text may use.
func imports(text string) string {
	used := map[string]bool{}
	for _, found := range qualifier.FindAllStringSubmatch(text, -1) {
		used[found[1]] = true
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(used)) {
		if path, ok := packages[name]; ok {
			fmt.Fprintf(&b, "import %q\n", path)
		}
	}
	return b.String()
}
