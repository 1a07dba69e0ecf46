package ral_test

import (
	"bytes"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	code    = regexp.MustCompile("(?s)```.*?```|`[^`\n]*`")
	link    = regexp.MustCompile(`\]\(([^)\s:]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	silent  = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// anchors returns the headings of a page as links name them.
func anchors(page string) map[string]bool {
	all := map[string]bool{}
	for _, found := range heading.FindAllStringSubmatch(page, -1) {
		all[strings.ReplaceAll(silent.ReplaceAllString(strings.ToLower(found[1]), ""), " ", "-")] = true
	}
	return all
}

// Promise: Document links lead to a file and a heading.
func TestLinksBetweenDocumentsLead(t *testing.T) {
	out, err := exec.Command("git", "ls-files", "*.md").Output()
	if err != nil {
		t.Skipf("not a git checkout: %s", err)
	}
	links := 0
	for _, page := range strings.Fields(string(out)) {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, found := range link.FindAllStringSubmatch(code.ReplaceAllString(string(text), ""), -1) {
			name, anchor, _ := strings.Cut(found[1], "#")
			target := filepath.Join(filepath.Dir(page), name)
			if name == "" {
				target = page
			}
			links++
			if anchor == "" {
				_, err := os.Stat(target)
				assert.NoError(t, err, "%s: %s", page, found[1])
				continue
			}
			other, err := os.ReadFile(target)
			assert.NoError(t, err, "%s: %s", page, found[1])
			assert.True(t, anchors(string(other))[anchor], "%s: %s leads to no heading", page, found[1])
		}
	}
	assert.Greater(t, links, 100)
}

// unlisted returns the packages of all modules that a page lists nowhere: neither by a link, nor by
// their last name in a row that links a folder above them.
func unlisted(t *testing.T, page string) (folders []string) {
	t.Helper()
	modules, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}/...").Output()
	require.NoError(t, err)
	packages, err := exec.Command("go", append([]string{"list", "-find", "-f", "{{.ImportPath}}"}, strings.Fields(string(modules))...)...).Output()
	require.NoError(t, err)
	require.Contains(t, string(packages), module+"/fleet/internal/store\n", "the list has all modules")
	for _, path := range strings.Fields(string(packages)) {
		folder := strings.TrimPrefix(strings.TrimPrefix(path, module), "/")
		listed := folder == "" || strings.Contains(page, "]("+folder+")")
		for row := range strings.Lines(page) {
			for _, found := range link.FindAllStringSubmatch(row, -1) {
				rest, below := strings.CutPrefix(folder, found[1]+"/")
				listed = listed || below && (strings.Contains(row, "`"+filepath.Base(folder)+"`") || strings.Contains(row, "`"+rest+"`"))
			}
		}
		if !listed {
			folders = append(folders, folder)
		}
	}
	return folders
}

// Promise: ARCHITECTURE lists every package.
func TestArchitectureListsEveryPackage(t *testing.T) {
	text, err := os.ReadFile("ARCHITECTURE.md")
	require.NoError(t, err)
	page := string(text)
	assert.Empty(t, unlisted(t, page), "packages without a place in ARCHITECTURE.md: name each in the row of its folder")
	assert.Equal(t, []string{"cell"}, unlisted(t, strings.Replace(page, "](cell)", "](cel)", 1)))
	assert.Equal(t, []string{"fleet/internal/lease"}, unlisted(t, strings.ReplaceAll(page, "`lease`", "lease")))
}

// Promise: This page has the tests' promises.
func TestPromisesAreThoseOfTheTests(t *testing.T) {
	var faults bytes.Buffer
	command := exec.Command("go", "run", "./tools/promises")
	command.Stderr = &faults
	made, err := command.Output()
	require.NoError(t, err, faults.String())
	page, err := os.ReadFile("docs/promises.md")
	require.NoError(t, err)
	assert.Equal(t, string(made), string(page), "run: go run ./tools/promises >docs/promises.md")
}

// closed matches folders without packages for programs.
var closed = regexp.MustCompile(`(^|/)(\..+|internal|testdata)$|^(cmd|docs|examples|test|tools)$`)

// Promise: Every importable package has a promise here.
func TestEveryPackagePromises(t *testing.T) {
	page, err := os.ReadFile("docs/promises.md")
	require.NoError(t, err)
	packages := map[string]bool{}
	require.NoError(t, filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		switch folder := filepath.Dir(name); {
		case err != nil:
			return err
		case d.IsDir() && name != "." && closed.MatchString(name):
			return filepath.SkipDir
		case folder != "." && strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go"):
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.PackageClauseOnly)
			if err != nil {
				return err
			}
			packages[folder] = packages[folder] || file.Name.Name != "main"
		}
		return nil
	}))
	assert.Greater(t, len(packages), 15)
	for folder, imported := range packages {
		if imported {
			assert.True(t, strings.Contains(string(page), "\n## "+folder+"\n"), "package %s promises nothing", folder)
		}
	}
}
