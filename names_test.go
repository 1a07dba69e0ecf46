package ral_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// names counts the exported names of a package: constants, variables, functions, types, methods of
// exported types, and the methods of exported interfaces. fields counts the fields of structs.
func names(t *testing.T, folder string) (all []string, fields int) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	require.NoError(t, err)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		parsed, err := parser.ParseFile(token.NewFileSet(), file, source, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range parsed.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if of := receiver(d); d.Name.IsExported() && (of == "" || ast.IsExported(of)) {
					all = append(all, of+"."+d.Name.Name)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					found, n := namesOf(spec)
					all, fields = append(all, found...), fields+n
				}
			}
		}
	}
	return all, fields
}

func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	of := d.Recv.List[0].Type
	if star, ok := of.(*ast.StarExpr); ok {
		of = star.X
	}
	switch generic := of.(type) {
	case *ast.IndexExpr:
		of = generic.X
	case *ast.IndexListExpr:
		of = generic.X
	}
	return of.(*ast.Ident).Name
}

// namesOf returns the exported names of a declaration, and the number of its fields.
func namesOf(spec ast.Spec) (all []string, fields int) {
	exported := func(list []*ast.Ident) (some []string) {
		for _, name := range list {
			if name.IsExported() {
				some = append(some, name.Name)
			}
		}
		return some
	}
	switch spec := spec.(type) {
	case *ast.ValueSpec:
		all = exported(spec.Names)
	case *ast.TypeSpec:
		if !spec.Name.IsExported() {
			return nil, 0
		}
		all = append(all, spec.Name.Name)
		switch body := spec.Type.(type) {
		case *ast.StructType:
			for _, field := range body.Fields.List {
				fields += len(exported(field.Names))
			}
		case *ast.InterfaceType:
			for _, method := range body.Methods.List {
				all = append(all, exported(method.Names)...)
			}
		}
	}
	return all, fields
}

// Promise: Packages engine and policy together export few names.
func TestFaceStaysSmall(t *testing.T) {
	ofEngine, settings := names(t, "engine")
	ofPolicy, parts := names(t, "policy")
	t.Logf("engine %d names and %d fields, policy %d names and %d fields", len(ofEngine), settings, len(ofPolicy), parts)
	// 6 of them block keys: Penalty, ErrFull, and Block, Blocked and AllBlocked. 8 are for saved
	// states: State, Save, Sync, Load, KeyCodec and three errors. 7 read limits from text (Parse,
	// ParseError, Text), and 9 are windows of the clock and the calendar with their anchors in an
	// engine. 8 are for adapters: Ask, Hold and Look of an Engine and of a Tiered, Tiered.LimitFor
	// and Outcome.Provenance. 15 show keys to people: KeysByUse of Stats, MostUsed, MostRefused and
	// Explain with their types, and Describe.
	assert.Less(t, len(ofEngine)+len(ofPolicy), 105+8+9+7+6+8+15, "%v %v", ofEngine, ofPolicy)
	assert.Contains(t, ofEngine, "Engine.Choke", "the count sees methods")
	assert.Contains(t, ofPolicy, "FreshAt", "the count sees methods of interfaces")
	assert.Greater(t, settings, 12, "the count sees fields")
}
