// Promises prints docs/promises.md: the promises of the repository, and the tests that prove them.
// A promise is a line of a test's doc comment:
//
//	// Promise: Racing calls pass exactly as often as the limit allows.
//	func TestHotKeyIsExact(t *testing.T) {
//
// Run it at the root of the repository:
//
//	go run ./tools/promises >docs/promises.md
package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const head = `# What Ral promises

Each promise stands beside a test that fails when it is broken. ` + "`go run ./tools/promises >docs/promises.md`" + `
prints the lines ` + "`// Promise:`" + ` above the tests. [mutations.md](mutations.md) shows tests that fail without a mechanism.
`

var test = regexp.MustCompile(`^(Test|Fuzz|Example)`) // run by go test without a flag

func main() {
	if err := write(os.Stdout, "."); err != nil {
		fmt.Fprintln(os.Stderr, "promises:", err)
		os.Exit(1)
	}
}

// write writes the page for the test files below root, sorted by folder and file. Internal folders
// stand under the folder that has them.
func write(w io.Writer, root string) error {
	type place struct{ title, inner string }
	rows := map[place][]string{}
	err := filepath.WalkDir(root, func(name string, dirEntry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if base := dirEntry.Name(); dirEntry.IsDir() && name != root && (base[0] == '.' || base == "testdata") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(name, "_test.go") {
			return nil
		}
		title, inner := strings.Replace(filepath.ToSlash(filepath.Dir(name)), ".", "ral", 1), ""
		if i := strings.Index("/"+title, "/internal/"); i >= 0 {
			title, inner = title[:max(i-1, 0)], title[i:]+"."
		}
		more, err := promises(name, inner)
		if at := (place{cmp.Or(title, "internal"), inner}); len(more) > 0 {
			rows[at] = append(rows[at], more...)
		}
		return err
	})
	if err != nil {
		return err
	}
	fmt.Fprint(w, head)
	title := ""
	for _, section := range slices.SortedFunc(maps.Keys(rows), func(a, b place) int {
		return cmp.Or(cmp.Compare(a.title, b.title), cmp.Compare(a.inner, b.inner))
	}) {
		if section.title != title {
			title = section.title
			fmt.Fprintf(w, "\n## %s\n\n|Promise|Test|\n|---|---|\n", title)
		}
		fmt.Fprint(w, strings.Join(rows[section], ""))
	}
	return nil
}

// promises returns a row for each promise in a file, which must be in a test's doc comment. The
// test's name follows the inner folder.
func promises(name, inner string) (rows []string, err error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	tests := map[*ast.CommentGroup]string{}
	for _, decl := range file.Decls {
		if funcDecl, ok := decl.(*ast.FuncDecl); ok && funcDecl.Recv == nil && test.MatchString(funcDecl.Name.Name) {
			tests[funcDecl.Doc] = funcDecl.Name.Name
		}
	}
	for _, group := range file.Comments {
		for _, line := range group.List {
			text, ok := strings.CutPrefix(line.Text, "// Promise: ")
			if !ok {
				continue
			}
			if tests[group] == "" {
				return rows, fmt.Errorf("%s: a promise stands above a test only", files.Position(line.Pos()))
			}
			rows = append(rows, fmt.Sprintf("|%s|`%s%s`|\n", text, inner, tests[group]))
		}
	}
	return rows, nil
}
