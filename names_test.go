package ral_test

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
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
	paths, err := filepath.Glob(filepath.Join(folder, "*.go"))
	require.NoError(t, err)
	set := token.NewFileSet()
	var files []*ast.File
	for _, path := range paths {
		if !strings.HasSuffix(path, "_test.go") {
			file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			files = append(files, file)
		}
	}
	pkg, err := doc.NewFromFiles(set, files, folder) // without what is not exported
	require.NoError(t, err)
	values := func(lists ...[]*doc.Value) {
		for _, list := range lists {
			for _, v := range list {
				all = append(all, v.Names...)
			}
		}
	}
	functions := func(prefix string, list []*doc.Func) {
		for _, f := range list {
			all = append(all, prefix+f.Name)
		}
	}
	values(pkg.Consts, pkg.Vars)
	functions("", pkg.Funcs)
	for _, typ := range pkg.Types {
		all = append(all, typ.Name)
		values(typ.Consts, typ.Vars)
		functions("", typ.Funcs)
		functions(typ.Name+".", typ.Methods)
		switch body := typ.Decl.Specs[0].(*ast.TypeSpec).Type.(type) {
		case *ast.StructType:
			fields += body.Fields.NumFields()
		case *ast.InterfaceType:
			for _, method := range body.Methods.List {
				for _, name := range method.Names {
					all = append(all, name.Name)
				}
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
	// engine. 10 are for adapters: Admit, Hold and Look of an Engine and of a Tiered, Engine.Join, Tiered.LimitFor,
	// Outcome.Provenance and Claim.Brief. 15 show keys to people: KeysByUse of Stats, MostUsed, MostRefused and
	// Explain with their types, and Describe. 3 warn of keys: OnWarn, Warning and LatestWarnings. 9 are for units
	// in use: InFlight, MaxTimeInUse, Occupier with its methods, and Release and Extend of engine's handles.
	// 28 share a limit among tenants: Shares, their configuration, answers, reservations, claims, counts and tenants. 1 says an
	// Outcome in words, 2 tell an engine's Epoch, and SwitchLimit is for limitfile's sources.
	assert.Less(t, len(ofEngine)+len(ofPolicy), 105+10+9+7+6+8+15+3+9+28+1+2+1, "%v %v", ofEngine, ofPolicy)
	assert.Contains(t, ofEngine, "Engine.Choke", "the count sees methods")
	assert.Contains(t, ofPolicy, "FreshAt", "the count sees methods of interfaces")
	assert.Greater(t, settings, 12, "the count sees fields")
}
