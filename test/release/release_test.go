package release

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/mod/modfile"

	"github.com/ral-limiter/ral/internal/testkit/must"
)

// clone is a copy of the repository's committed files and of tools/release, on main.
type clone struct {
	t    *testing.T
	root string
}

func checkout(t *testing.T) clone {
	t.Helper()
	if out, err := exec.Command("git", "rev-parse", "HEAD").CombinedOutput(); err != nil {
		t.Skipf("tools/release works on a git checkout, and this is none: %s", out)
	}
	return clone{t, must.Get(filepath.Abs("../.."))}
}

func newClone(t *testing.T) clone {
	t.Helper()
	of, c := checkout(t), clone{t, filepath.Join(t.TempDir(), "ral")}
	of.git("clone", "-q", "--no-hardlinks", "--depth=1", "file://"+of.root, c.root)
	require.NoError(t, os.WriteFile(filepath.Join(c.root, "tools/release"), must.Get(os.ReadFile(filepath.Join(of.root, "tools/release"))), 0o755))
	c.git("config", "user.name", "test")
	c.git("config", "user.email", "test@example.com")
	c.git("checkout", "-q", "-B", "main")
	c.write("CHANGELOG.md", "# Changelog\n\n## Unreleased\n\n### Added\n- all of it.\n")
	return c
}

func (c clone) git(args ...string) string {
	c.t.Helper()
	out, err := exec.Command("git", append([]string{"-C", c.root}, args...)...).CombinedOutput()
	require.NoError(c.t, err, string(out))
	return string(out)
}

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

// mustRelease prepares a release and tags it as the script says.
func (c clone) mustRelease(version string) {
	c.t.Helper()
	out, err := c.release(version)
	require.NoError(c.t, err, out)
	for line := range strings.Lines(out) {
		if args := strings.Fields(line); len(args) > 1 && args[0] == "git" && args[1] == "tag" {
			c.git(args[1:]...)
		}
	}
}

func (c clone) modules() (folders []string) {
	c.t.Helper()
	list := must.Get(os.ReadFile(filepath.Join(c.root, "tools/modules")))
	for line := range strings.Lines(string(list)) {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "#") {
			folders = append(folders, line)
		}
	}
	return folders
}

// kept are the modules that are run from a clone and not imported.
var kept = []string{"cmd/rald/oracle", "examples", "test"}

// goVersion is the language version of every module, which users need. The oracle's reference needs cloneVersion,
// and go.work may not say less than a module of it.
const (
	goVersion    = "1.25"
	cloneVersion = "1.25.6"
)

// Promise: The documents, the image and the tests of each change have the language version of every go.mod.
func TestEverythingSaysOneGoVersion(t *testing.T) {
	c := checkout(t)
	for file, want := range map[string]string{
		"README.md":                "Ral needs Go " + goVersion + ":",
		"CONTRIBUTING.md":          "You need Go " + cloneVersion + " or later",
		"go.work":                  "\ngo " + cloneVersion + "\n",
		"deploy/Dockerfile":        "FROM golang:" + goVersion + " AS build",
		".github/workflows/ci.yml": "go: ['" + goVersion + "', stable]",
	} {
		assert.Contains(t, string(must.Get(os.ReadFile(filepath.Join(c.root, file)))), want, file)
	}
}

// Promise: A rehearsal has a limit of its own and leaves nothing behind, whatever becomes of it.
func TestRehearsalLeavesNothingBehindWithProcesses(t *testing.T) {
	c, folder := checkout(t), t.TempDir()
	temporary, record := filepath.Join(folder, "tmp"), filepath.Join(folder, "record")
	require.NoError(t, os.Mkdir(temporary, 0o755))
	fake := filepath.Join(folder, "go")
	script := "#!/bin/sh\n[ \"$1\" = test ] || exit 0\necho \"$TMPDIR $*\" >" + record + "\ntouch \"$TMPDIR/module\"\nexit 1\n"
	require.NoError(t, os.WriteFile(fake, []byte(script), 0o755))
	cmd := exec.Command("make", "-s", "-C", c.root, "rehearsal", "GO="+fake)
	cmd.Env = append(os.Environ(), "TMPDIR="+temporary)
	require.Error(t, cmd.Run())
	assert.Contains(t, string(must.Get(os.ReadFile(record))), "-timeout 60m -run ^TestRehearsal ")
	assert.Contains(t, string(must.Get(os.ReadFile(record))), temporary+"/")
	assert.Empty(t, must.Get(os.ReadDir(temporary)))
}

// Modules are in order of requirement. Commands have no replace, which go install refuses.
func TestEveryModuleIsReleasedOrKept(t *testing.T) {
	c := checkout(t)
	released := c.modules()
	all := slices.Concat(released, kept)
	for _, file := range strings.Fields(c.git("ls-files", "go.mod", "*/go.mod")) {
		folder := filepath.Dir(file)
		require.Contains(t, all, folder, "tools/modules has the modules that are released")
		text := must.Get(os.ReadFile(filepath.Join(c.root, file)))
		mod := must.Get(modfile.Parse(file, text, nil))
		assert.Equal(t, pathOf(folder), mod.Module.Mod.Path)
		want := goVersion + ".0"
		if folder == "cmd/rald/oracle" {
			want = cloneVersion
		}
		assert.Equal(t, want, mod.Go.Version, file)
		if strings.HasPrefix(folder, "cmd/") && slices.Contains(released, folder) {
			assert.Empty(t, mod.Replace, folder)
		}
		for _, r := range mod.Require {
			before := slices.IndexFunc(all, func(folder string) bool { return pathOf(folder) == r.Mod.Path })
			assert.Less(t, before, slices.Index(all, folder), "%s requires %s", folder, r.Mod.Path)
		}
	}
}

func TestReleaseSetsVersionsAndMovesTheHeadingWithProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("clones the repository, and runs tools/release")
	}
	c := newClone(t)
	out, err := c.release("v0.1.0")
	require.NoError(t, err, out)
	tags := 0
	for _, folder := range c.modules() {
		tag := strings.TrimPrefix(folder+"/v0.1.0", "./")
		at := strings.Index(out, "git tag -a "+tag+" -m "+tag+"\n")
		assert.Greater(t, at, tags, "%s in the order of tools/modules", tag)
		tags = at
	}
	assert.Contains(t, out, "git push origin main v0.1.0 fleet/v0.1.0 ")
	assert.Empty(t, c.git("status", "--porcelain"))
	assert.Empty(t, c.git("tag"), "it is for people to tag")

	changelog := must.Get(os.ReadFile(filepath.Join(c.root, "CHANGELOG.md")))
	assert.Regexp(t, `(?s)## Unreleased\n\n## v0\.1\.0, \d{4}-\d\d-\d\d\n\n### Added`, string(changelog))
	readme := must.Get(os.ReadFile(filepath.Join(c.root, "README.md")))
	assert.Contains(t, string(readme), "`go get "+root+"/httplimit@v0.1.0`")
	assert.Contains(t, string(readme), "Ral needs Go "+goVersion+":")
	assert.Contains(t, string(readme), "Before 1.0 a minor version may change an interface", "what may change is said after a release, too")
	assert.NotContains(t, string(readme), "not released")
	assert.NotContains(t, c.git("grep", "-h", root, "--", "*go.mod"), " v0.0.0", "a module requires another one that is not released")

	c.git("tag", "v0.1.0")
	out, err = c.release("v0.2.0")
	require.Error(t, err)
	assert.Contains(t, out, `nothing under "Unreleased"`)
}

func TestReleaseRefusesWithProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("clones the repository, and runs tools/release")
	}
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
