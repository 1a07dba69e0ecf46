package ral_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

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
