package ral_test

import (
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
