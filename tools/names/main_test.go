package main

import (
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// tree writes files below a folder of the test.
func tree(t *testing.T, files map[string]string) string {
	root := t.TempDir()
	for name, text := range files {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o644))
	}
	return root
}

func measured(t *testing.T, files map[string]string) (all map[string]figures, found []string) {
	packages, err := packagesIn(tree(t, files))
	require.NoError(t, err)
	all = map[string]figures{}
	for _, p := range packages {
		all[p.folder] = measure(p, func(_ token.Position, name string) { found = append(found, name) })
	}
	return all, found
}

func TestExportedNamesAreCountedByTheirReaders(t *testing.T) {
	const text = "import \"time\"\ntype T struct { Field int }\nfunc (*T) M() {}\nfunc (T) m() {}\n" +
		"type I interface { Call(time.Time) }\ntype hidden struct{}\nfunc (hidden) M() {}\nfunc F() time.Time\nconst A, b = 1, 2\n"
	all, _ := measured(t, map[string]string{
		"door/a.go": "package door\n" + text, "cmd/x/kit/a.go": "package kit\n" + text, "cmd/x/main.go": "package main\n" + text,
		"door/internal/a.go": "package internal\n" + text, "cell/a.go": "package cell\n" + text,
		"door/a_test.go": "package door\n\nfunc TestX() {}\n",
	})
	want := map[string][2]int{"door": {6, 0}, "cmd/x/kit": {0, 6}, "cmd/x": {}, "door/internal": {}, "cell": {}} // T, T.M, I, I.Call, F, A
	got := map[string][2]int{}
	for folder, f := range all {
		got[folder] = [2]int{f[users], f[commands]}
	}
	assert.Equal(t, want, got)
}

// The file a names b, and b calls a method and reads a field that c declares.
func TestArrowsRunUpIfTheirFilesUseEachOther(t *testing.T) {
	all, _ := measured(t, map[string]string{
		"down/a.go": "package down\n\nfunc A() { b(thing{}) }\n",
		"down/b.go": "package down\n\nfunc b(x interface{ m() }) { x.m() }\n",
		"down/c.go": "package down\n\ntype thing struct{ field int }\n\nfunc (thing) m() {}\n",
		"back/a.go": "package back\n\nvar a thing\n\nvar x = a.field\n",
		"back/b.go": "package back\n\ntype thing struct{ field int }\n\nfunc b() { c() }\n",
		"back/c.go": "package back\n\nfunc c() { _ = x }\n",
	})
	assert.Equal(t, [2]int{2, 0}, [2]int{all["down"][arrows], all["down"][up]}, "a leads to b and c")
	assert.Equal(t, [2]int{3, 1}, [2]int{all["back"][arrows], all["back"][up]}, "a circle runs up once, wherever its reading begins")
}

func TestWordsAreCountedByTheirLife(t *testing.T) {
	all, found := measured(t, map[string]string{"p/p.go": `package p

type s struct{ of int }

func f(at int) int {
	of := 1
	_ = of
	return of
}

func g(at int) int {
	mostUsed, most, fewer := 1, 2, 3
	_, _, _ = mostUsed, most, fewer
	return at
}

func h(at int) int {
	return at
}
`})
	assert.ElementsMatch(t, []string{"of", "at", "mostUsed"}, found)
	assert.Equal(t, 2, all["p"][longOfAt])
	assert.Equal(t, 1, all["p"][superlatives])
	assert.Equal(t, [2]int{12, 31}, [2]int{all["p"][declared], all["p"][letters]})
}

func TestFiguresAboveTheirBoundsAreErrors(t *testing.T) {
	var out strings.Builder
	root := tree(t, map[string]string{
		"fleet/a.go": "package fleet\n\nvar a, mostUsed = b, 1\n", "fleet/b.go": "package fleet\n\nvar b = a\n", "cmd/x/y/y.go": "package y\n\nvar Y int\n",
		"fleet/internal/store/a.go": "package store\n\nvar a = b\n", "fleet/internal/store/b.go": "package store\n\nvar b = a\n",
	})
	const bounds = "up fleet 2 1\nup fleet/internal/store 1 0\nnames users 0 0\nnames commands 1 1\nwords of-at 0 0\nwords superlatives 1 0\n"
	require.NoError(t, run(&out, root, bounds, true))
	assert.Contains(t, out.String(), "a.go:3:8: mostUsed\n")
	for kind, want := range map[string]string{
		"up fleet 2": "up fleet is 2, at most 1 is accepted", "up fleet/internal/store 1": "up fleet/internal/store is 1, at most 0 is accepted",
		"names commands 1": "names commands is 1, at most 0 is accepted", "words superlatives 1": "words superlatives is 1, at most 0 is accepted",
	} {
		less := kind[:len(kind)-1] + string(kind[len(kind)-1]-1)
		assert.EqualError(t, run(&out, root, strings.Replace(bounds, kind, less, 1), false), want)
	}
	assert.ErrorContains(t, run(&out, root, "up fleet\n", false), "want a kind, a name, a bound and a goal")
	assert.NoError(t, run(&out, root, "", false))
}
