package ral_test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const module = "github.com/ral-limiter/ral"

// What each package may import beside the standard library. Imports point down
// this list only: nothing below knows of anything above it.
var mayImport = []struct {
	pkg   string
	other []string
}{
	// Where a simulation gets between the steps of all that follow. It is given none.
	{"internal/core/seam", nil},
	// Whether the race detector is on, for tests.
	{"internal/testkit/race", nil},
	// Waits for events, in tests.
	{"internal/testkit/await", nil},
	// The time from the processor's counter: neither keys nor limits.
	{"internal/core/clock", nil},
	// What a limit is made of, for module fleet, and whether there is one.
	{"internal/core/shape", nil},
	{"internal/core/whole", nil},
	// Seeds of tests of random inputs.
	{"internal/testkit/seeds", nil},
	// Processes beside this one, for modules that start some and for tests.
	{"internal/testkit/child", nil},
	{"internal/testkit/redisd", []string{"internal/testkit/child"}},
	// What clients may send, for tests of httplimit.
	{"internal/testkit/httpattack", nil},
	// Calls that wait for a key: neither words nor policies.
	{"internal/core/waitline", []string{"internal/core/seam", "github.com/puzpuzpuz/xsync/v3"}},
	{"policy", []string{"internal/core/shape", "internal/core/whole"}},
	// Takes that may still be given back, for cell and single.
	{"internal/core/underway", []string{"policy"}},
	// Blocked keys as words, for engine.
	{"internal/core/penalty", []string{"policy"}},
	// What a call does to a word, for cell, single and explanations of engine.
	{"internal/core/decide", []string{"policy", "internal/core/shape"}},
	// Files of keys and words: neither what a word means nor what a key is.
	{"internal/core/statefile", []string{"policy"}},
	// The keys that come most often: neither what is counted nor why.
	{"internal/core/frequent", nil},
	// Keys as bytes: neither words nor files.
	{"internal/core/keycodec", nil},
	// Which claim decided, for engine and module fleet.
	{"internal/adapter/binding", []string{"policy"}},
	// What adapters need of a limiter: not how one works.
	{"limits", []string{"policy", "internal/core/shape", "internal/adapter/binding"}},
	// Tests that the packages of limiters run on theirs.
	{"internal/testkit/limitstest", []string{"policy", "limits", "github.com/stretchr/testify/assert", "github.com/stretchr/testify/require"}},
	{"cmdqueue", []string{"internal/core/seam"}},
	{"supervisor", []string{"internal/core/seam"}},
	{"table", []string{"internal/core/seam", "policy", "github.com/google/btree"}},
	// The janitor passes on the instants of its clock, of which policy has the type.
	{"janitor", []string{"internal/core/seam", "policy", "table", "cmdqueue"}},
	{"cell", []string{"internal/core/seam", "internal/core/waitline", "internal/core/underway", "internal/core/decide", "internal/core/shape", "internal/core/frequent", "policy", "table", "cmdqueue"}},
	{"engine", []string{"internal/core/clock", "internal/core/seam", "internal/core/shape", "policy", "internal/core/decide", "internal/core/statefile", "internal/core/keycodec", "internal/core/penalty", "cmdqueue", "supervisor", "table", "janitor", "internal/core/waitline", "internal/adapter/binding", "cell", "limits"}},
	// A limit without keys: what an engine does for one key, by the word alone.
	{"single", []string{"internal/core/clock", "internal/core/shape", "internal/core/waitline", "internal/core/underway", "internal/core/decide", "policy", "limits"}},
	// Names of metrics and how they are read, for adapters to monitoring systems.
	{"observe/metrics", []string{"internal/core/shape", "limits", "engine", "single"}},
	{"internal/testkit/metricspage", []string{"observe/metrics", "github.com/stretchr/testify/assert", "github.com/stretchr/testify/require"}},
	// Records of what happens to limiters.
	{"observe/eventlog", []string{"policy", "supervisor", "engine"}},
	// Whose request it is, for middleware: neither requests nor limits.
	{"internal/adapter/clientaddr", []string{"policy"}},
	// The decision about requests of any kind, for middleware: neither what they are nor what clients are told.
	{"internal/adapter/admission", []string{"internal/core/decide", "internal/core/shape", "internal/core/whole", "policy", "limits", "engine"}},
	// Calls of gRPC and Connect, of which it imports neither.
	{"rpclimit", []string{"internal/adapter/binding", "internal/adapter/clientaddr", "internal/adapter/admission", "internal/core/shape", "policy", "limits", "engine", "observe/metrics"}},
	{"httplimit", []string{"internal/adapter/clientaddr", "internal/adapter/admission", "internal/core/shape", "internal/core/whole", "policy", "limits", "engine", "observe/metrics"}},
	// Calls that go out, to limits that others keep.
	{"outgoing", []string{"internal/core/shape", "policy", "engine", "observe/metrics"}},
	// What operators see of limiters of any kind. It adds nothing to a call.
	{"internal/adapter/pagejson", nil},
	{"observe/inspect", []string{"internal/adapter/pagejson", "internal/core/shape", "policy", "limits", "engine", "single", "supervisor"}},
	// One of the benchmark's yardsticks is a bare xsync map.
	{"bench", []string{"policy", "engine", "github.com/puzpuzpuz/xsync/v3"}},
	// What make test prints, for people who work on Ral.
	{"tools/testrun", nil},
	// What commands say of themselves.
	{"cmd/internal/version", nil},
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
		at := slices.IndexFunc(mayImport, func(m struct {
			pkg   string
			other []string
		}) bool {
			return m.pkg == name
		})
		if !assert.GreaterOrEqual(t, at, 0, "package %s has no place in the order of imports: give it one here", name) {
			continue
		}
		for _, path := range p.Imports {
			if first, _, _ := strings.Cut(path, "/"); !strings.Contains(first, ".") {
				continue // the standard library
			}
			own := strings.TrimPrefix(path, module+"/")
			assert.Contains(t, mayImport[at].other, own, "package %s may not import %s", name, path)
		}
	}
	for _, m := range mayImport {
		assert.Contains(t, seen, m.pkg, "the package is gone")
	}
}

// Only the supervisor starts goroutines in the core: a goroutine that is not watched is
// not restarted.
//
// Promise: Only the supervisor starts goroutines of an engine.
func TestOnlyTheSupervisorStartsGoroutines(t *testing.T) {
	for _, pkg := range []string{"policy", "cmdqueue", "supervisor", "table", "janitor", "cell", "engine", "single", "limits", "observe/metrics", "observe/eventlog", "httplimit", "rpclimit", "observe/inspect"} {
		starts := goStatements(t, pkg)
		if pkg == "supervisor" {
			assert.NotEmpty(t, starts, "the check finds nothing even where there is something")
			continue
		}
		if pkg == "observe/eventlog" || pkg == "observe/inspect" {
			// In eventlog a timer writes the newest record of a topic that was one too many. No
			// call may come after it, nothing is lost except that record if it dies, and a log has
			// no Close. In inspect a function of the program may never return, so that it
			// needs a goroutine that is not waited for.
			assert.Len(t, starts, 1, "package %s starts other goroutines", pkg)
			continue
		}
		assert.Empty(t, starts, "package %s starts goroutines", pkg)
	}
}

// The root module is what every user takes on.
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
