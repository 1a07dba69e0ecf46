package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// module writes a small module with one function and one test of it, and returns a
// runner of it.
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

// What becomes of a mutant: it is noticed only by a test that ran and failed, not by
// code that does not compile or by a text or test that is not there.
func TestVerdicts(t *testing.T) {
	r := module(t)
	for name, c := range map[string]struct {
		old, new, tests string
		killer, why     string
	}{
		"fails":         {"a + b", "a - b", "TestAdd", "TestAdd", ""},
		"panics":        {"return a + b", "panic(a + b)", "TestAdd", "TestAdd", ""},
		"ends":          {"func Add(a, b int) int { return a + b }", "import \"os\"\n\nfunc Add(a, b int) int { os.Exit(a + b); return 0 }", "TestAdd", "TestAdd", ""},
		"survives":      {"a + b", "b + a", "TestAdd", "", "1 tests passed"},
		"no code":       {"a + b", "a +", "TestAdd", "", "could not be run"},
		"no such test":  {"a + b", "a - b", "TestSubtract", "", "no test has run"},
		"no such text":  {"a * b", "a - b", "TestAdd", "", "is 0 times in sum/sum.go"},
		"text is twice": {"a", "b", "TestAdd", "", "times in sum/sum.go, want once"},
	} {
		t.Run(name, func(t *testing.T) {
			got := r.try(t.Context(), 1, mutation{name: name, file: "sum/sum.go", old: c.old, new: c.new, tests: c.tests})
			if got.killer != c.killer || !strings.Contains(got.why, c.why) || (c.why == "") != (got.why == "") {
				t.Errorf("%v", got)
			}
		})
	}
	source, err := os.ReadFile(filepath.Join(r.root, "sum/sum.go"))
	if err != nil || !strings.Contains(string(source), "a + b") {
		t.Error("the source was changed")
	}
}

// Tests that fail without a mutant are no measure.
func TestTestsMustPassFirst(t *testing.T) {
	r := module(t)
	m := mutation{name: "m", file: "sum/sum.go", old: "a + b", new: "a - b", tests: "TestAdd"}
	if err := r.sound(t.Context(), []mutation{m}); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(r.root, "sum/sum.go"), []byte("package sum\n\nfunc Add(a, b int) int { return 0 }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.sound(t.Context(), []mutation{m}); err == nil {
		t.Error("a test that always fails is taken for one that notices")
	}
	m.tests = "TestNothing"
	if err := r.sound(t.Context(), []mutation{m}); err == nil {
		t.Error("no test is taken for one that passes")
	}
}
