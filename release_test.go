package ral_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// clone is a copy of the repository's committed files and of tools/release, on main.
type clone struct {
	t    *testing.T
	root string
}

func newClone(t *testing.T) clone {
	t.Helper()
	c := clone{t, filepath.Join(t.TempDir(), "ral")}
	if out, err := exec.Command("git", "rev-parse", "HEAD").CombinedOutput(); err != nil {
		t.Skipf("tools/release works on a git checkout, and this is none: %s", out)
	}
	out, err := exec.Command("git", "clone", "-q", "--no-hardlinks", "--depth=1", "file://"+pwd(t), c.root).CombinedOutput()
	require.NoError(t, err, string(out))
	script, err := os.ReadFile("tools/release")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(c.root, "tools/release"), script, 0o755))
	c.git("config", "user.name", "test")
	c.git("config", "user.email", "test@example.com")
	c.git("checkout", "-q", "-B", "main")
	c.write("CHANGELOG.md", "# Changelog\n\n## Unreleased\n\n### Added\n- all of it.\n")
	return c
}

func pwd(t *testing.T) string {
	t.Helper()
	folder, err := os.Getwd()
	require.NoError(t, err)
	return folder
}

func (c clone) git(args ...string) string {
	c.t.Helper()
	out, err := exec.Command("git", append([]string{"-C", c.root}, args...)...).CombinedOutput()
	require.NoError(c.t, err, string(out))
	return string(out)
}

// write commits a file.
func (c clone) write(name, text string) {
	c.t.Helper()
	require.NoError(c.t, os.WriteFile(filepath.Join(c.root, name), []byte(text), 0o644))
	c.git("add", "-A")
	c.git("commit", "-q", "-m", "test: "+name)
}

func (c clone) release(version string) (string, error) {
	c.t.Helper()
	cmd := exec.Command("./tools/release", version)
	cmd.Dir, cmd.Env = c.root, append(os.Environ(), "CHECKS=none")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestReleaseSetsVersionsAndMovesTheHeading(t *testing.T) {
	if testing.Short() {
		t.Skip("builds every module of a clone; make check does")
	}
	c := newClone(t)
	out, err := c.release("v0.1.0")
	require.NoError(t, err, out)
	assert.Contains(t, out, "git push origin fleet/v0.1.0")
	assert.Less(t, strings.Index(out, "git tag -a v0.1.0"), strings.Index(out, "git tag -a fleet/v0.1.0"))
	assert.Empty(t, c.git("status", "--porcelain"))
	assert.Empty(t, c.git("tag"), "it is for people to tag")

	changelog, err := os.ReadFile(filepath.Join(c.root, "CHANGELOG.md"))
	require.NoError(t, err)
	assert.Regexp(t, `(?s)## Unreleased\n\n## v0\.1\.0, \d{4}-\d\d-\d\d\n\n### Added`, string(changelog))
	for _, module := range []string{"fleet", "rpc", "cmd/ralbench", "examples", "test"} {
		mod, err := os.ReadFile(filepath.Join(c.root, module, "go.mod"))
		require.NoError(t, err)
		assert.Contains(t, string(mod), "github.com/ral-limiter/ral v0.1.0", module)
		assert.NotContains(t, string(mod), "ral v0.0.0", module)
	}

	// What it left is to be tagged, and has nothing unreleased.
	c.git("tag", "v0.1.0")
	out, err = c.release("v0.2.0")
	require.Error(t, err)
	assert.Contains(t, out, `nothing under "Unreleased"`)
}

func TestReleaseRefuses(t *testing.T) {
	c := newClone(t)
	c.git("tag", "v0.2.0")
	head := c.git("rev-parse", "HEAD")
	for version, why := range map[string]string{
		"":             "want a semantic version",
		"0.3.0":        "want a semantic version",
		"v0.03.0":      "want a semantic version",
		"v0.3.0-rc.1":  "want a semantic version",
		"v0.2.0":       "want one above the last tag",
		"v0.1.9":       "want one above the last tag",
		"v0.3.0; true": "want a semantic version",
	} {
		out, err := c.release(version)
		require.Error(t, err, version)
		assert.Contains(t, out, why, version)
	}
	require.NoError(t, os.WriteFile(filepath.Join(c.root, "stray"), nil, 0o644))
	out, err := c.release("v0.3.0")
	require.Error(t, err)
	assert.Contains(t, out, "the work tree has changes")
	require.NoError(t, os.Remove(filepath.Join(c.root, "stray")))
	c.git("checkout", "-q", "-b", "other")
	out, err = c.release("v0.3.0")
	require.Error(t, err)
	assert.Contains(t, out, "the branch is other, want main")
	assert.Equal(t, head, c.git("rev-parse", "HEAD"))
}
