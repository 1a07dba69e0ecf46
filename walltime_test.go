package ral_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// onWallClock has the number of places in each folder's tests that wait for the wall clock or judge
// by it: such a test may fail on a busy machine. Benchmarks do not count. Numbers only fall, and
// unlisted folders have none. go test -run WallClock . -lower writes lower numbers. An intended
// place ends with the comment "wall: " and its reason, and is not counted.
const onWallClock = `
cmd/ral 2
engine 6
internal/testkit/child 1
internal/core/seam 2
internal/core/waitline 2
outgoing 2
supervisor 1
table 1
test/torture/hostile 2
test/torture/linear 2
test/torture/properties 6
test/torture/simulation 3
`

const patience = 30 * time.Second // the shortest budget that a starved process keeps

var (
	lower  = flag.Bool("lower", false, "write the numbers in walltime_test.go that are lower by now")
	excuse = regexp.MustCompile(`^// wall: \S+ \S+`)
)

func TestNoTestJudgesTheWallClock(t *testing.T) {
	folders := map[string][]*ast.File{}
	files := token.NewFileSet()
	require.NoError(t, filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (entry.Name() == "testdata" || len(path) > 1 && strings.HasPrefix(entry.Name(), ".")) {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(files, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		folders[filepath.Dir(path)] = append(folders[filepath.Dir(path)], file)
		return err
	}))
	left := onWallClock
	for _, folder := range slices.Sorted(maps.Keys(folders)) {
		places, idle := wallPlaces(files, folders[folder])
		assert.Empty(t, idle, "%s: a comment excuses no call", folder)
		have, want, lowered := len(places), 0, fmt.Sprintf("\n%s %d\n", folder, len(places))
		if found := regexp.MustCompile("\n" + folder + " (\\d+)\n").FindStringSubmatch(left); found != nil {
			want, _ = strconv.Atoi(found[1])
			if have == 0 {
				lowered = "\n"
			}
			left = strings.Replace(left, found[0], lowered, 1)
		}
		if have > want {
			t.Errorf("%s: tests wait for the wall clock, or judge by it, at %d places, want %d.\n"+
				"Wait for an event, count, run in a synctest bubble, or make the budget %v: see CONTRIBUTING.md.\n%s",
				folder, have, want, patience, strings.Join(places, "\n"))
		} else if have < want && !*lower {
			t.Errorf("%s: %d places are left, fewer than the %d in walltime_test.go: go test -run WallClock . -lower", folder, have, want)
		}
	}
	for line := range strings.Lines(strings.TrimSpace(onWallClock)) {
		folder, _, _ := strings.Cut(line, " ")
		assert.True(t, folders[folder] != nil, "%s has no tests", folder)
	}
	if *lower && !t.Failed() {
		source, err := os.ReadFile("walltime_test.go")
		require.NoError(t, err)
		source = []byte(strings.Replace(string(source), "`"+onWallClock+"`", "`"+left+"`", 1))
		require.NoError(t, os.WriteFile("walltime_test.go", source, 0o644))
	}
}

// wallPlaces returns the calls in test files that sleep, read elapsed time or have a budget below
// patience, and the comments that excuse none.
func wallPlaces(files *token.FileSet, parsed []*ast.File) (places, idle []string) {
	s := scanTests(parsed)
	line := func(n ast.Node) string {
		at := files.Position(n.Pos())
		return fmt.Sprint(at.Filename, ":", at.Line)
	}
	excused, used := map[string]bool{}, map[string]bool{}
	for _, file := range parsed {
		for _, comments := range file.Comments {
			for _, c := range comments.List {
				excused[line(c)] = excused[line(c)] || excuse.MatchString(c.Text)
			}
		}
	}
	for _, file := range parsed {
		for _, decl := range file.Decls {
			if s.outside[nameOf(decl)] {
				s.walk(decl, false, func(n ast.Node, inBubble bool) {
					call, ok := n.(*ast.CallExpr)
					if !ok || inBubble || !s.waits(call) {
						return
					}
					if used[line(call)] = true; !excused[line(call)] {
						_, name := callee(call)
						places = append(places, line(call)+": "+name)
					}
				})
			}
		}
		for _, comments := range file.Comments {
			for _, c := range comments.List {
				if excused[line(c)] && !used[line(c)] {
					idle = append(idle, line(c))
				}
			}
		}
	}
	return places, idle
}

// testScan holds the functions and constants in a folder's tests by name, without their types.
type testScan struct {
	bubblers  map[string]bool // functions that run a parameter in a synctest bubble
	outside   map[string]bool // functions that run outside a bubble; "" is the package's variables
	constants map[string][]ast.Expr
}

func scanTests(parsed []*ast.File) testScan {
	s := testScan{map[string]bool{"synctest.Test": true}, map[string]bool{"": true}, map[string][]ast.Expr{}}
	uses := map[string]bool{}
	for _, file := range parsed {
		ast.Inspect(file, func(n ast.Node) bool {
			if v, ok := n.(*ast.ValueSpec); ok {
				for i := range min(len(v.Names), len(v.Values)) {
					s.constants[v.Names[i].Name] = append(s.constants[v.Names[i].Name], v.Values[i])
				}
			}
			return true
		})
	}
	// Each pass learns from the pass before.
	until := func(known map[string]bool, pass func(name string, decl ast.Decl)) {
		for before := -1; before != len(known); {
			before = len(known)
			for _, file := range parsed {
				for _, decl := range file.Decls {
					pass(nameOf(decl), decl)
				}
			}
		}
	}
	until(s.bubblers, func(name string, decl ast.Decl) {
		params := functionParams(decl)
		s.walk(decl, false, func(n ast.Node, inBubble bool) {
			if id, ok := n.(*ast.Ident); ok && inBubble && params[id.Name] {
				s.bubblers[name] = true
			}
		})
	})
	until(uses, func(name string, decl ast.Decl) {
		s.walk(decl, false, func(n ast.Node, _ bool) {
			if id, ok := n.(*ast.Ident); ok && id.Name != name {
				uses[id.Name] = true
			}
		})
	})
	until(s.outside, func(name string, decl ast.Decl) {
		if !uses[name] && !strings.HasPrefix(name, "Benchmark") {
			s.outside[name] = true // a test, or a method called through an interface
		}
		if !s.outside[name] {
			return
		}
		s.walk(decl, false, func(n ast.Node, inBubble bool) {
			if id, ok := n.(*ast.Ident); ok && !inBubble {
				s.outside[id.Name] = true
			}
		})
	})
	return s
}

// nameOf returns the name of a function, "" for other declarations.
func nameOf(decl ast.Decl) string {
	if f, ok := decl.(*ast.FuncDecl); ok {
		return f.Name.Name
	}
	return ""
}

// functionParams returns the names of a function's parameters that are functions.
func functionParams(decl ast.Decl) map[string]bool {
	names := map[string]bool{}
	if f, ok := decl.(*ast.FuncDecl); ok {
		for _, field := range f.Type.Params.List {
			if _, ok := field.Type.(*ast.FuncType); ok {
				for _, name := range field.Names {
					names[name.Name] = true
				}
			}
		}
	}
	return names
}

// walk visits each node of a declaration, and tells whether it is in a bubble.
func (s testScan) walk(root ast.Node, inBubble bool, visit func(n ast.Node, inBubble bool)) {
	ast.Inspect(root, func(n ast.Node) bool {
		if n == nil {
			return false
		}
		visit(n, inBubble)
		call, ok := n.(*ast.CallExpr)
		if !ok || inBubble {
			return true
		}
		if pkg, name := callee(call); !s.bubblers[name] && !s.bubblers[pkg+"."+name] {
			return true
		}
		s.walk(call.Fun, false, visit)
		for _, arg := range call.Args {
			s.walk(arg, true, visit)
		}
		return false
	})
}

// callee returns the name of a called function, and the name before its dot.
func callee(call *ast.CallExpr) (before, name string) {
	switch f := ast.Unparen(call.Fun).(type) {
	case *ast.Ident:
		return "", f.Name
	case *ast.SelectorExpr:
		if x, ok := f.X.(*ast.Ident); ok {
			before = x.Name
		}
		return before, f.Sel.Name
	case *ast.IndexExpr:
		return callee(&ast.CallExpr{Fun: f.X})
	}
	return "", ""
}

func (s testScan) waits(call *ast.CallExpr) bool {
	pkg, name := callee(call)
	var budget int // index of the argument
	switch pkg + "." + name {
	case "time.Sleep", "time.Since", "time.Until", "assert.Never", "require.Never":
		return true
	case "time.After", "time.NewTimer", "time.AfterFunc", "time.Tick", "time.NewTicker":
		budget = 0
	case "context.WithTimeout", "context.WithTimeoutCause", "context.WithDeadline", "context.WithDeadlineCause":
		budget = 1
	case "assert.Eventually", "require.Eventually", "assert.EventuallyWithT", "require.EventuallyWithT":
		budget = 2
	default:
		return false
	}
	d, ok := s.duration(call.Args[budget], 0)
	return !ok || d > 0 && d < float64(patience) // a past deadline does not wait
}

// duration returns the value of a constant expression, or of time.Now().Add of it.
func (s testScan) duration(e ast.Expr, depth int) (float64, bool) {
	if depth > 20 {
		return 0, false
	}
	switch e := ast.Unparen(e).(type) {
	case *ast.BasicLit:
		f, ok := constant.Float64Val(constant.ToFloat(constant.MakeFromLiteral(e.Value, e.Kind, 0)))
		return f, ok || f != 0
	case *ast.Ident:
		if all := s.constants[e.Name]; len(all) == 1 {
			return s.duration(all[0], depth+1)
		}
	case *ast.SelectorExpr:
		unit, ok := map[string]time.Duration{"Nanosecond": 1, "Microsecond": time.Microsecond, "Millisecond": time.Millisecond,
			"Second": time.Second, "Minute": time.Minute, "Hour": time.Hour}[e.Sel.Name]
		return float64(unit), ok
	case *ast.CallExpr:
		if _, name := callee(e); len(e.Args) == 1 && (name == "Add" || name == "Duration") {
			return s.duration(e.Args[0], depth+1)
		}
	case *ast.UnaryExpr:
		x, ok := s.duration(e.X, depth+1)
		return -x, ok && e.Op == token.SUB
	case *ast.BinaryExpr:
		x, okX := s.duration(e.X, depth+1)
		y, okY := s.duration(e.Y, depth+1)
		switch e.Op {
		case token.MUL:
			return x * y, okX && okY
		case token.QUO:
			return x / y, okX && okY
		case token.ADD:
			return x + y, okX && okY
		case token.SUB:
			return x - y, okX && okY
		}
	}
	return 0, false
}

// It sees bubbles through helpers, and constants through their names.
func TestWallClockIsSeen(t *testing.T) {
	const source = `package p
const short, long = 5 * time.Second, time.Minute
func TestX(t *testing.T) {
	time.Sleep(1)                                       // want
	time.Sleep(1)                                       // wall: the kernel needs it
	context.WithTimeout(ctx, short)                     // want
	context.WithTimeout(ctx, long/2)
	context.WithDeadline(ctx, time.Now().Add(2 * long))
	context.WithDeadline(ctx, time.Now().Add(-time.Second))
	context.WithTimeout(ctx, budget)                    // want
	require.Eventually(t, done, 30*time.Second, short)
	assert.Eventually(t, done, 29.5*time.Second, short) // want
	synctest.Test(t, func(t *testing.T) { time.Sleep(1); inside(t) })
	inBubble(t, func() { time.Sleep(1); both() })
	both()
	s.inBubbleToo(t, inside)
}
func inBubble(t *testing.T, f func()) { synctest.Test(t, func(t *testing.T) { f() }) }
func (s suite) inBubbleToo(t *testing.T, f func(t *testing.T)) { inBubble(t, func() { f(t) }); time.Sleep(1) } // want
func inside(t *testing.T) { time.Sleep(1); further() }
func further() { <-time.After(1) }
func both() { time.Since(start)                         // want
}
func (fake) Read() { time.NewTimer(short)               // want
}
func BenchmarkX(b *testing.B) { start := time.Now(); measured(b); time.Since(start) }
func measured(b *testing.B) { time.Since(start) }
var late = func() { time.Sleep(1)                       // want
}
var stale = 1                                           // wall: idle comment
`
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "x_test.go", source, parser.ParseComments)
	require.NoError(t, err)
	places, idle := wallPlaces(files, []*ast.File{file})
	var want, got []string
	for i, line := range strings.Split(source, "\n") {
		if strings.HasSuffix(line, "// want") {
			want = append(want, fmt.Sprint("x_test.go:", i+1))
		}
	}
	for _, p := range places {
		got = append(got, p[:strings.LastIndex(p, ":")])
	}
	assert.Equal(t, want, got)
	assert.Equal(t, []string{fmt.Sprint("x_test.go:", strings.Count(source, "\n"))}, idle)
}
