package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// pkg is a package without its tests.
type pkg struct {
	folder string // below the root, with slashes
	set    *token.FileSet
	files  []*ast.File
	types  *types.Package
	info   types.Info
}

// packagesIn returns the packages below root, sorted by folder.
func packagesIn(root string) ([]*pkg, error) {
	all := map[string]*pkg{}
	set := token.NewFileSet()
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, dirEntry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if base := dirEntry.Name(); dirEntry.IsDir() && name != "." && (base[0] == '.' || base == "testdata") {
			return fs.SkipDir
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(set, filepath.Join(root, name), nil, parser.SkipObjectResolution|parser.ParseComments)
		if err != nil || ast.IsGenerated(file) {
			return err
		}
		folder := path.Dir(name)
		if all[folder] == nil {
			all[folder] = &pkg{folder: folder, set: set}
		}
		all[folder].files = append(all[folder].files, file)
		return nil
	})
	sorted := slices.SortedFunc(maps.Values(all), func(a, b *pkg) int { return strings.Compare(a.folder, b.folder) })
	for _, pkg := range sorted {
		pkg.info = types.Info{Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}}
		// A package is checked without those that it imports: their names are errors, which do not
		// matter here.
		config := types.Config{Error: func(error) {}}
		pkg.types, _ = config.Check(pkg.folder, pkg.set, pkg.files, &pkg.info)
	}
	return sorted, err
}

// file returns the number of the file at a position, or -1.
func (p *pkg) file(position token.Pos) int {
	return slices.IndexFunc(p.files, func(file *ast.File) bool { return file.FileStart <= position && position < file.FileEnd })
}
