package main

import (
	"encoding/json"
	"errors"
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

	"github.com/ral-limiter/ral/internal/testkit/must"
)

const root = "../.."

// compiled describes a package for the go command.
type compiled struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
}

// packages returns the packages of the root module and fleet, and their imports, by path.
func packages(t *testing.T) map[string]compiled {
	t.Helper()
	cmd := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles", "./...", "./fleet/...")
	cmd.Dir, cmd.Stderr = root, os.Stderr
	out := must.Get(cmd.Output())
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

// Promise: Every mutant applies and compiles.
func TestEveryMutantCompiles(t *testing.T) {
	all := mutants(t)
	known := packages(t)
	set := token.NewFileSet()
	imports := importer.ForCompiler(set, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(known[path].Export)
	})
	parse := func(name string) *ast.File {
		file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Error(err)
		}
		return file
	}
	// Of unchanged files only the declarations matter.
	declared := map[string]*ast.File{}
	declarations := func(name string) *ast.File {
		if declared[name] == nil {
			declared[name] = parse(name)
			for _, d := range declared[name].Decls {
				if f, ok := d.(*ast.FuncDecl); ok {
					f.Body = nil
				}
			}
		}
		return declared[name]
	}
	for _, m := range all {
		folder := t.TempDir()
		if err := m.apply(root, folder); err != nil {
			t.Error(err)
			continue
		}
		changed := map[string]bool{}
		folders := map[string]bool{}
		for _, file := range m.changes {
			changed[file] = true
			if filepath.Ext(file) == ".go" { // not a script of Redis
				folders[filepath.ToSlash(filepath.Dir(file))] = true
			}
		}
		for in := range folders {
			path := "github.com/ral-limiter/ral/" + in
			var files []*ast.File
			for _, name := range known[path].GoFiles {
				if changed[in+"/"+name] {
					files = append(files, parse(filepath.Join(folder, in, name)))
				} else {
					files = append(files, declarations(filepath.Join(known[path].Dir, name)))
				}
			}
			if len(files) == 0 {
				t.Fatalf("%s: no package %s", m.name, path)
			}
			config := types.Config{Importer: imports, Error: func(err error) {
				// An unchanged file without bodies has unused imports.
				var fault types.Error
				if !errors.As(err, &fault) || !fault.Soft || strings.HasPrefix(set.Position(fault.Pos).Filename, folder) {
					t.Errorf("%s: %v", m.name, err)
				}
			}}
			_, _ = config.Check(path, set, files, nil)
		}
	}
}

func mutants(t *testing.T) []mutant {
	t.Helper()
	absolute := must.Get(filepath.Abs(root))
	all := must.Get(readMutants(absolute))
	if len(all) < 230 {
		t.Fatalf("only %d mutants", len(all))
	}
	return all
}

func TestEveryMutantNamesItsTests(t *testing.T) {
	tests := map[string][]string{}
	for _, m := range mutants(t) {
		if strings.Contains(m.name+m.without, "|") {
			t.Errorf("%q: a heading with a | breaks the table", m.name)
		}
		if _, ok := tests[m.pkg]; !ok {
			tests[m.pkg] = testsOf(t, m.pkg)
		}
		for pattern := range strings.SplitSeq(m.tests, "|") {
			top, _, _ := strings.Cut(pattern, "/")
			match, found := regexp.MustCompile(top), false
			for _, name := range tests[m.pkg] {
				found = found || match.MatchString(name)
			}
			if !found || top == "" {
				t.Errorf("%s: no test in %s is called %q", m.name, m.pkg, pattern)
			}
		}
	}
}

func testsOf(t *testing.T, pkg string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, pkg, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %v, %v", pkg, files, err)
	}
	for _, name := range files {
		source := must.Get(os.ReadFile(name))
		for _, found := range regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`).FindAllStringSubmatch(string(source), -1) {
			names = append(names, found[1])
		}
	}
	return names
}
