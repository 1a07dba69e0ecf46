package main

import (
	"encoding/json"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

// compiled holds a package as the go command lists it.
type compiled struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
}

// packages returns the packages of the root module and all that they import, by
// import path.
func packages(t *testing.T) map[string]compiled {
	t.Helper()
	cmd := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles", "./...")
	cmd.Dir, cmd.Stderr = root, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]compiled{}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p compiled
		if err := d.Decode(&p); err == io.EOF {
			return found
		} else if err != nil {
			t.Fatal(err)
		}
		found[p.ImportPath] = p
	}
}

// Each text to be replaced is in its file once, and what is left compiles: so the list
// cannot fall behind the code.
func TestEveryMutantCompiles(t *testing.T) {
	if len(all()) < 35 {
		t.Fatalf("only %d mutants", len(all()))
	}
	known := packages(t)
	set := token.NewFileSet()
	imports := importer.ForCompiler(set, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(known[path].Export)
	})
	parsed := map[string]*ast.File{}
	for _, m := range all() {
		mutant, err := m.apply(root)
		if err != nil {
			t.Error(err)
			continue
		}
		path := "github.com/ral-limiter/ral/" + filepath.ToSlash(filepath.Dir(m.file))
		var files []*ast.File
		for _, name := range known[path].GoFiles {
			var file *ast.File
			if name == filepath.Base(m.file) {
				file, err = parser.ParseFile(set, m.file, mutant, parser.SkipObjectResolution)
			} else if file = parsed[path+name]; file == nil {
				file, err = parser.ParseFile(set, filepath.Join(known[path].Dir, name), nil, parser.SkipObjectResolution)
				parsed[path+name] = file
			}
			if err != nil {
				t.Errorf("%s: %v", m.name, err)
			}
			files = append(files, file)
		}
		if len(files) == 0 {
			t.Fatalf("%s: no package %s", m.name, path)
		}
		config := types.Config{Importer: imports, Error: func(err error) { t.Errorf("%s: %v", m.name, err) }}
		_, _ = config.Check(path, set, files, nil)
	}
}

// Each mutant says what it is about, and names tests that there are.
func TestEveryMutantNamesItsTests(t *testing.T) {
	names := map[string]bool{}
	tests := map[string][]string{}
	for _, m := range all() {
		if names[m.name] || m.name == "" || m.without == "" || m.old == m.new || strings.Contains(m.name+m.without, "|") {
			t.Errorf("%q: taken twice, or does not say enough", m.name)
		}
		names[m.name] = true
		if _, ok := tests[m.where()]; !ok {
			tests[m.where()] = testsOf(t, m.where())
		}
		for pattern := range strings.SplitSeq(m.tests, "|") {
			top, _, _ := strings.Cut(pattern, "/")
			match, found := regexp.MustCompile(top), false
			for _, name := range tests[m.where()] {
				found = found || match.MatchString(name)
			}
			if !found || top == "" {
				t.Errorf("%s: no test in %s is called %q", m.name, m.where(), pattern)
			}
		}
	}
}

// testsOf returns the names of the tests of a package.
func testsOf(t *testing.T, pkg string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, pkg, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %v, %v", pkg, files, err)
	}
	for _, name := range files {
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`).FindAllStringSubmatch(string(source), -1) {
			names = append(names, found[1])
		}
	}
	return names
}

// The table of results is that of the list as it is now.
func TestResultsAreThoseOfTheList(t *testing.T) {
	table, err := os.ReadFile(filepath.Join(root, reportFile))
	if err != nil {
		t.Fatal(err)
	}
	lines := rows(string(table))
	delete(lines, "Taken out")
	if len(lines) != len(all()) {
		t.Errorf("%d results of %d mutants: go run ./tools/mutation", len(lines), len(all()))
	}
	for _, m := range all() {
		if !strings.HasPrefix(lines[m.name], "| "+m.name+" | "+m.without+" | `"+m.where()+".") {
			t.Errorf("%s has no result: go run ./tools/mutation", m.name)
		}
	}
}
