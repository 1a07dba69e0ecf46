package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ral-limiter/ral/internal/testkit/must"
)

// module writes a module with a function and its test.
func module(t *testing.T) runner {
	t.Helper()
	folder := t.TempDir()
	for name, content := range map[string]string{
		"go.mod":          "module example.org/m\n\ngo 1.25\n",
		"sum/sum.go":      "package sum\n\nfunc Add(a, b int) int { return a + b }\n",
		"sum/sum_test.go": "package sum\n\nimport \"testing\"\n\nfunc TestAdd(t *testing.T) {\n\tif Add(1, 2) != 3 {\n\t\tt.Fail()\n\t}\n}\n",
	} {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("GOWORK", "off")
	return runner{root: folder, folder: t.TempDir(), limit: time.Minute}
}

// patched writes a patch that replaces a line of sum/sum.go by others.
func patched(t *testing.T, old, replacement, tests string) mutant {
	t.Helper()
	var lines strings.Builder
	count := 0
	for line := range strings.SplitSeq(replacement, "\n") {
		lines.WriteString("+" + line + "\n")
		count++
	}
	text := "Mechanism: m\nWithout it: nothing works\nPackage: sum\nTests: " + tests + "\n\n" +
		"--- a/sum/sum.go\n+++ b/sum/sum.go\n" +
		fmt.Sprintf("@@ -1,3 +1,%d @@\n package sum\n \n-%s\n%s", 2+count, old, lines.String())
	m := must.Get(parse(text))
	m.patch = filepath.Join(t.TempDir(), "m.patch")
	if err := os.WriteFile(m.patch, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return m
}

// Only a test that ran and failed counts: not a failed patch or compilation, nor a missing test.
// No mutant begins after the end.
func TestVerdictsWithProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the go command")
	}
	const add = "func Add(a, b int) int { return a + b }"
	r := module(t)
	cases := []struct {
		old, new, tests string
		killer, why     string
	}{
		{add, "func Add(a, b int) int { return a - b }", "TestAdd", "TestAdd", ""},
		{add, "func Add(a, b int) int { panic(a + b) }", "TestAdd", "TestAdd", ""},
		{add, "import \"os\"\n\nfunc Add(a, b int) int { os.Exit(a + b); return 0 }", "TestAdd", "TestAdd", ""},
		{add, "func Add(a, b int) int { return b + a }", "TestAdd", "", "1 tests passed"},
		{add, "func Add(a, b int) int { return a + }", "TestAdd", "", "could not be run"},
		{"func Sub(a, b int) int { return a - b }", "func Sub() {}", "TestAdd", "", "does not apply"},
		{add, "func Add(a, b int) int { return a - b }", "TestSubtract", "", "no test has run"},
	}
	var chosen []mutant
	for _, c := range cases {
		chosen = append(chosen, patched(t, c.old, c.new, c.tests))
	}
	last := len(chosen) - 1 // its output would tell the go command that this package has no test
	all := append(r.tryAll(t.Context(), chosen[:last], 2, time.Time{}), r.try(t.Context(), last, chosen[last]))
	for i, c := range cases {
		if got := all[i]; got.killer != c.killer || !strings.Contains(got.why, c.why) || (c.why == "") != (got.why == "") {
			t.Errorf("%s: %v", c.new, got)
		}
	}
	source, err := os.ReadFile(filepath.Join(r.root, "sum/sum.go"))
	if err != nil || !strings.Contains(string(source), "a + b") {
		t.Error("the source was changed")
	}
	if strings.Contains(table(all, nil), "left out") {
		t.Error("without an end:", table(all, nil))
	}
	if late := r.tryAll(t.Context(), chosen[:2], 1, time.Unix(1, 0)); len(late) != 0 || !strings.Contains(table(late, chosen[:2]), "2 left out:\n\n- m (sum/sum.go)\n") {
		t.Error("after the end:", table(late, chosen[:2]))
	}
}

func TestTestsMustPassFirstWithProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the go command")
	}
	r := module(t)
	m := mutant{name: "m", pkg: "sum", tests: "TestAdd"}
	if err := r.sound(t.Context(), []mutant{m}); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(r.root, "sum/sum.go"), []byte("package sum\n\nfunc Add(a, b int) int { return 0 }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.sound(t.Context(), []mutant{m}); err == nil {
		t.Error("a test that always fails was accepted")
	}
	m.tests = "TestNothing"
	if err := r.sound(t.Context(), []mutant{m}); err == nil {
		t.Error("a pattern that matches no test was accepted")
	}
}

func TestHeadingsThatAreWrong(t *testing.T) {
	const good = "Mechanism: m\nWithout it: w\nPackage: p\nTests: T\nLimit: 1s\n\n--- a/x.go\n+++ b/x.go\n"
	if m, err := parse(good); err != nil || m.limit != time.Second || m.changes[0] != "x.go" {
		t.Fatal(m, err)
	}
	for _, c := range []struct{ old, new, want string }{
		{"Mechanism: m\n", "", "Mechanism"},
		{"Tests: T\n", "", "Tests"},
		{"Limit: 1s", "Limit: soon", "Limit"},
		{"Package: p", "Packet: p", "Packet"},
		{"+++ b/x.go", "", "changes no file"},
		{"\n\n", "\n", "no empty line"},
	} {
		_, err := parse(strings.Replace(good, c.old, c.new, 1))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q for %q: %v", c.new, c.old, err)
		}
	}
}
