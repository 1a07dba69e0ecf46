package ral_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	// A test by its folder and name; ral is the root.
	promised = regexp.MustCompile("`([a-z/]+)\\.((?:Test|Fuzz|Example)\\w*)`")
	declared = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Example)\w*)\(`)
	quoted   = regexp.MustCompile("`[^`]*`")
	made     = regexp.MustCompile("`make (check|nightly)`")
)

// testsIn returns the names of the tests in a folder.
func testsIn(t *testing.T, folder string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	require.NoError(t, err)
	for _, name := range files {
		source, err := os.ReadFile(name)
		require.NoError(t, err)
		for _, found := range declared.FindAllStringSubmatch(string(source), -1) {
			names = append(names, found[1])
		}
	}
	return names
}

// Each promise in docs/promises.md stands beside tests that there are.
func TestPromisesNameTheirTests(t *testing.T) {
	text, err := os.ReadFile("docs/promises.md")
	require.NoError(t, err)
	known := map[string][]string{}
	promises, packages := 0, map[string]bool{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| Promise |") {
			continue
		}
		if !assert.Len(t, cells, 2, line) {
			continue
		}
		promises++
		tests := promised.FindAllStringSubmatch(cells[1], -1)
		// Nothing else is in that column, except what make runs.
		assert.Len(t, quoted.FindAllString(cells[1], -1), len(tests)+len(made.FindAllString(cells[1], -1)), "%s names a test in another way", line)
		assert.True(t, len(tests) > 0 || made.MatchString(cells[1]), "no test would notice: %s", line)
		for _, found := range tests {
			folder, name := found[1], found[2]
			packages[folder] = true
			if folder == "ral" {
				folder = "."
			}
			if known[folder] == nil {
				known[folder] = testsIn(t, folder)
			}
			assert.True(t, slices.Contains(known[folder], name), "%s has no %s", found[1], name)
		}
	}
	assert.Greater(t, promises, 80)
	for _, m := range mayImport {
		// What is internal promises users nothing.
		assert.True(t, packages[m.pkg] || strings.HasPrefix(m.pkg, "internal/"), "package %s promises nothing", m.pkg)
	}
}
