package ral_test

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const module = "github.com/ral-limiter/ral"

// mayImport has each package's imports beside the standard library. Imports point down this list
// only: no package knows of those above it.
var mayImport = []struct {
	pkg   string
	other []string
}{
	{"internal/core/seam", nil},
	{"internal/testkit/testenv", nil},
	{"internal/testkit/must", []string{"github.com/stretchr/testify/assert", "github.com/stretchr/testify/require"}},
	{"internal/testkit/logbuffer", nil},
	{"internal/core/clock", nil},
	{"internal/core/shape", nil},
	{"internal/core/whole", nil},
	{"internal/core/escape", nil},
	{"internal/core/rounds", nil},
	{"internal/testkit/child", nil},
	{"internal/core/waitline", []string{"internal/core/seam", "github.com/puzpuzpuz/xsync/v3"}},
	{"policy", []string{"internal/core/shape", "internal/core/whole"}},
	{"internal/core/warn", []string{"internal/core/shape", "policy"}},
	{"internal/core/underway", []string{"internal/core/seam", "policy"}},
	{"internal/core/rewrites", []string{"policy"}},
	{"internal/core/penalty", []string{"policy"}},
	{"internal/core/decide", []string{"policy", "internal/core/shape"}},
	{"internal/core/statefile", []string{"policy"}},
	{"internal/core/filewatch", nil},
	{"internal/core/frequent", nil},
	{"internal/core/keycodec", nil},
	{"internal/adapter/binding", []string{"policy"}},
	// Adapters need this of a limiter.
	{"limits", []string{"policy", "internal/core/shape", "internal/adapter/binding"}},
	{"internal/testkit/limitstest", []string{"policy", "limits", "github.com/stretchr/testify/assert", "github.com/stretchr/testify/require"}},
	{"cmdqueue", []string{"internal/core/seam"}},
	{"supervisor", []string{"internal/core/seam"}},
	{"table", []string{"internal/core/seam", "internal/core/rewrites", "internal/core/shape", "policy", "github.com/google/btree"}},
	// The janitor passes on instants, a type of policy.
	{"janitor", []string{"internal/core/seam", "policy", "table", "cmdqueue"}},
	{"cell", []string{"internal/core/seam", "internal/core/waitline", "internal/core/underway", "internal/core/decide", "internal/core/shape", "internal/core/frequent", "internal/core/warn", "policy", "table", "cmdqueue"}},
	{"engine", []string{"internal/core/warn", "internal/core/clock", "internal/core/escape", "internal/core/seam", "internal/core/shape", "policy", "internal/core/decide", "internal/core/statefile", "internal/core/keycodec", "internal/core/penalty", "internal/core/underway", "internal/core/rounds", "internal/core/frequent", "cmdqueue", "supervisor", "table", "janitor", "internal/core/waitline", "internal/adapter/binding", "cell", "limits", "github.com/puzpuzpuz/xsync/v3"}},
	{"single", []string{"internal/core/seam", "internal/core/rewrites", "internal/core/clock", "internal/core/shape", "internal/core/waitline", "internal/core/underway", "internal/core/decide", "policy", "limits"}},
	{"observe/metrics", []string{"internal/core/shape", "limits", "engine", "single"}},
	{"observe/eventlog", []string{"policy", "supervisor", "engine", "single"}},
	{"internal/adapter/clientaddr", []string{"policy"}},
	{"internal/adapter/admission", []string{"internal/core/escape", "internal/core/clock", "internal/core/decide", "internal/core/shape", "internal/core/whole", "policy", "internal/adapter/binding", "limits", "engine", "single"}},
	{"internal/testkit/admissiontest", []string{"policy", "limits", "engine", "single", "github.com/stretchr/testify/assert", "github.com/stretchr/testify/require"}},
	// It imports neither gRPC nor Connect.
	{"rpclimit", []string{"internal/adapter/binding", "internal/adapter/clientaddr", "internal/adapter/admission", "internal/core/shape", "internal/core/whole", "policy", "limits", "engine", "observe/metrics"}},
	{"internal/testkit/rpctest", []string{"policy", "engine", "limits", "rpclimit", "outgoing", "internal/testkit/must", "internal/testkit/admissiontest", "github.com/stretchr/testify/assert", "github.com/stretchr/testify/require"}},
	{"httplimit", []string{"internal/adapter/clientaddr", "internal/adapter/admission", "internal/core/shape", "internal/core/whole", "policy", "limits", "engine", "observe/metrics"}},
	{"outgoing/internal/answer", []string{"policy"}},
	{"outgoing/internal/pacing", []string{"policy", "outgoing/internal/answer"}},
	{"outgoing", []string{"github.com/google/btree", "outgoing/internal/answer", "outgoing/internal/pacing", "internal/core/decide", "cell", "internal/core/shape", "policy", "engine", "observe/metrics"}},
	{"internal/adapter/pagejson", nil},
	{"observe/inspect", []string{"internal/adapter/pagejson", "internal/core/penalty", "internal/core/shape", "policy", "limits", "engine", "single", "supervisor"}},
	{"limitfile", []string{"internal/core/filewatch", "internal/core/penalty", "internal/core/shape", "internal/core/warn", "policy", "limits", "engine", "github.com/puzpuzpuz/xsync/v3"}},
	{"internal/testkit/observetest", []string{"policy", "limits", "engine", "single", "observe/metrics", "observe/inspect", "github.com/stretchr/testify/assert", "github.com/stretchr/testify/require"}},
	// A bare xsync map is a yardstick of the benchmark.
	{"bench", []string{"policy", "engine", "httplimit", "github.com/puzpuzpuz/xsync/v3"}},
	{"tools/testrun", nil},
	{"cmd/internal/version", nil},
	{"tools/names", nil},
	{"tools/promises", nil},
	{"tools/words", nil},
}

type listed struct {
	ImportPath string
	Imports    []string
	GoFiles    []string
}

func list(t *testing.T) []listed {
	t.Helper()
	// GOWORK=off: this module alone.
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,GoFiles", "./...")
	cmd.Env = append(cmd.Environ(), "GOWORK=off")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var all []listed
	for decoder := json.NewDecoder(out); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else {
			require.NoError(t, err)
		}
		all = append(all, p)
	}
	require.NoError(t, cmd.Wait())
	return all
}

// Promise: Imports point down one list of packages.
func TestImportsPointDown(t *testing.T) {
	var seen []string
	for _, p := range list(t) {
		name := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		if name == "" {
			assert.Empty(t, p.Imports, "the front page imports nothing")
			continue
		}
		seen = append(seen, name)
		index := slices.IndexFunc(mayImport, func(m struct {
			pkg   string
			other []string
		}) bool {
			return m.pkg == name
		})
		if !assert.GreaterOrEqual(t, index, 0, "package %s has no place in the order of imports: give it one here", name) {
			continue
		}
		for _, path := range p.Imports {
			if first, _, _ := strings.Cut(path, "/"); !strings.Contains(first, ".") {
				continue // the standard library
			}
			own := strings.TrimPrefix(path, module+"/")
			assert.Contains(t, mayImport[index].other, own, "package %s may not import %s", name, path)
		}
	}
	for _, m := range mayImport {
		assert.Contains(t, seen, m.pkg, "the package is gone")
	}
}

// goStatements returns the places in a package that start a goroutine: by a go statement, by
// sync.WaitGroup's Go, or by time.AfterFunc and context.AfterFunc.
func goStatements(t *testing.T, pkg string) (places []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(pkg, "*.go"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	set := token.NewFileSet()
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, name, nil, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				places = append(places, set.Position(n.Pos()).String())
			case *ast.SelectorExpr:
				if n.Sel.Name == "AfterFunc" || n.Sel.Name == "Go" {
					places = append(places, set.Position(n.Pos()).String())
				}
			}
			return true
		})
	}
	return places
}

// An unwatched goroutine is not restarted.
//
// Promise: Only the supervisor starts engine goroutines.
func TestOnlyTheSupervisorStartsGoroutines(t *testing.T) {
	for _, pkg := range []string{"policy", "cmdqueue", "supervisor", "table", "janitor", "cell", "engine", "single", "limits", "observe/metrics", "observe/eventlog", "httplimit", "rpclimit", "observe/inspect"} {
		starts := goStatements(t, pkg)
		if pkg == "supervisor" {
			assert.NotEmpty(t, starts, "the check finds nothing even where there is something")
			continue
		}
		if pkg == "observe/eventlog" || pkg == "observe/inspect" || pkg == "limits" {
			// In eventlog a timer writes the newest pending record of a topic. No call may come
			// after it, only that record is lost if it dies, and a log has no Close. In inspect a
			// function of the program may never return, so its goroutine is not waited for. In limits one
			// writes the record of a Recorder, which no call waits for.
			assert.Len(t, starts, 1, "package %s starts other goroutines", pkg)
			continue
		}
		assert.Empty(t, starts, "package %s starts goroutines", pkg)
	}
}

// Every user takes on the root module's requirements.
//
// Promise: The root module has three direct requirements.
func TestDirectRequirementsAreThree(t *testing.T) {
	out, err := exec.Command("go", "mod", "edit", "-json").Output()
	require.NoError(t, err)
	var mod struct {
		Require []struct {
			Path     string
			Indirect bool
		}
	}
	require.NoError(t, json.Unmarshal(out, &mod))
	var direct []string
	for _, r := range mod.Require {
		if !r.Indirect {
			direct = append(direct, r.Path)
		}
	}
	assert.ElementsMatch(t, []string{
		"github.com/google/btree", "github.com/puzpuzpuz/xsync/v3", "github.com/stretchr/testify",
	}, direct)
}
