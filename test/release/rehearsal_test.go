package release

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"

	"github.com/ral-limiter/ral/internal/testkit/must"
)

const root = "github.com/ral-limiter/ral"

func pathOf(folder string) string {
	if folder == "." {
		return root
	}
	return root + "/" + folder
}

// users runs go with a user's flags, a module proxy for the releases of a clone and an empty module
// cache. Other modules come from this machine's cache if possible.
type users struct {
	t     *testing.T
	proxy string
	env   []string
}

func newUsers(t *testing.T) users {
	t.Helper()
	folder := t.TempDir()
	u := users{t: t, proxy: filepath.Join(folder, "proxy")}
	out, err := exec.Command("go", "env", "GOMODCACHE", "GOPROXY").Output()
	require.NoError(t, err)
	cache, elsewhere, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	u.env = append(os.Environ(), "GOWORK=off", "GOSUMDB=off", "GOFLAGS=-modcacherw -trimpath",
		"GOMODCACHE="+filepath.Join(folder, "modules"), "GOBIN="+filepath.Join(folder, "bin"),
		"GOPROXY=file://"+u.proxy+",file://"+cache+"/cache/download,"+elsewhere)
	return u
}

func (u users) bin(command string) string {
	return filepath.Join(filepath.Dir(u.proxy), "bin", command)
}

func (u users) publish(c clone, folder, version string) {
	u.t.Helper()
	m := module.Version{Path: pathOf(folder), Version: version}
	versions := filepath.Join(u.proxy, m.Path, "@v")
	require.NoError(u.t, os.MkdirAll(versions, 0o755))
	put := func(name string, content []byte) {
		u.t.Helper()
		require.NoError(u.t, os.WriteFile(filepath.Join(versions, name), content, 0o644))
	}
	tag, subfolder := version, ""
	if folder != "." {
		tag, subfolder = folder+"/"+version, folder
	}
	info := must.Get(json.Marshal(map[string]any{"Version": version, "Time": time.Now()}))
	put(version+".info", info)
	put(version+".mod", []byte(c.git("show", tag+":./"+filepath.Join(subfolder, "go.mod"))))
	before, err := os.ReadFile(filepath.Join(versions, "list"))
	if !os.IsNotExist(err) {
		require.NoError(u.t, err)
	}
	put("list", append(before, version+"\n"...))
	file := must.Get(os.Create(filepath.Join(versions, version+".zip")))
	require.NoError(u.t, zip.CreateFromVCS(file, m, c.root, tag, subfolder))
	require.NoError(u.t, file.Close())
}

func (u users) run(folder string, args ...string) (string, error) {
	u.t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Env = folder, u.env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (u users) must(folder string, args ...string) {
	u.t.Helper()
	out, err := u.run(folder, args...)
	require.NoError(u.t, err, "go %s: %s", strings.Join(args, " "), out)
}

// program returns an empty module in which commands of go were run, each without its first word. The
// module has the program, or one that imports packages.
func (u users) program(text string, packages []string, commands ...string) string {
	u.t.Helper()
	folder := u.t.TempDir()
	u.must(folder, "mod", "init", "example.com/user")
	for _, command := range commands {
		u.must(folder, strings.Fields(command)...)
	}
	if text == "" {
		text = "package main\n\nimport (\n\t_ \"" + strings.Join(packages, "\"\n\t_ \"") + "\"\n)\n\nfunc main() {}\n"
	}
	require.NoError(u.t, os.WriteFile(filepath.Join(folder, "main.go"), []byte(text), 0o644))
	u.must(folder, "build", "-o", os.DevNull, ".")
	return folder
}

// install installs a command, which must tell its version.
func (u users) install(path string) {
	u.t.Helper()
	u.must(u.t.TempDir(), "install", path+"@v0.1.0")
	command := filepath.Base(path)
	said, err := exec.Command(u.bin(command), "-version").CombinedOutput()
	require.NoError(u.t, err, string(said))
	assert.True(u.t, strings.HasPrefix(string(said), command+" v0.1.0, go"), string(said))
}

var (
	// printed finds the commands that a page tells users of Ral's modules to run.
	printed   = regexp.MustCompile("go ((?:get|install) " + root + "[^\\s`]*)")
	programOf = regexp.MustCompile("(?s)```go\n(package main\n.*?)```")
)

// rehearsePage runs the commands of a page in an empty module, as they are printed. It builds the
// page's first program there, or one that imports what the commands name.
func (u users) rehearsePage(text string) (commands, programs int) {
	u.t.Helper()
	var all, packages []string
	for _, command := range printed.FindAllStringSubmatch(text, -1) {
		all = append(all, command[1])
		name, _, _ := strings.Cut(strings.Fields(command[1])[1], "@")
		packages = append(packages, name)
	}
	if len(all) == 0 {
		return 0, 0
	}
	program := ""
	if found := programOf.FindStringSubmatch(text); found != nil {
		program, programs = found[1], 1
	}
	u.program(program, packages, all...)
	return len(all), programs
}

func packages(c clone, folder string) (all []string) {
	c.t.Helper()
	cmd := exec.Command("go", "list", "-f", `{{if and .GoFiles (ne .Name "main")}}{{.ImportPath}}{{end}}`, "./...")
	cmd.Dir = filepath.Join(c.root, folder)
	out, err := cmd.Output()
	require.NoError(c.t, err)
	for _, p := range strings.Fields(string(out)) {
		if !strings.Contains(p+"/", "/internal/") {
			all = append(all, p)
		}
	}
	return all
}

// Users run the commands of each page in an empty module, import each module, install each command, and
// upgrade the root alone, which builds or names the module to upgrade with it. Released modules are vetted
// together, without replace and go.work.
func TestRehearsal(t *testing.T) {
	if testing.Short() {
		t.Skip("builds all modules from a proxy; make rehearsal does")
	}
	c, u := newClone(t), newUsers(t)
	modules := c.modules()
	c.mustRelease("v0.1.0")
	for _, folder := range modules {
		u.publish(c, folder, "v0.1.0")
	}
	commands, programs := 0, 0
	for _, page := range strings.Fields(c.git("ls-files", "README.md", "docs/*.md")) {
		t.Log(page)
		n, m := u.rehearsePage(string(must.Get(os.ReadFile(filepath.Join(c.root, page)))))
		commands, programs = commands+n, programs+m
	}
	require.Greater(t, commands, 4, "of README.md, fleet.md, grpc.md, connect.md and metrics.md")
	require.Positive(t, programs, "README.md has a program")
	ofFleet := ""
	for _, folder := range modules {
		path := pathOf(folder)
		if strings.HasPrefix(folder, "cmd/") {
			u.install(path)
		} else {
			all := packages(c, folder)
			program := u.program("", all, "get "+strings.Join(all, "@v0.1.0 ")+"@v0.1.0")
			if folder == "fleet" {
				ofFleet = program
			}
		}
		if folder == "." {
			continue // it requires no other
		}
		edit := []string{"mod", "edit"}
		for _, other := range modules {
			edit = append(edit, "-dropreplace="+pathOf(other))
		}
		u.must(filepath.Join(c.root, folder), edit...)
		u.must(filepath.Join(c.root, folder), "vet", "-mod=mod", "./...")
	}
	c.git("checkout", "-q", ".")

	// A function of the root that fleet calls gets another name.
	c.git("grep", "-q", "MostCharge(", "--", "fleet", "internal/core/decide")
	for _, file := range strings.Fields(c.git("grep", "-l", "MostCharge(", "--", "*.go")) {
		text, err := os.ReadFile(filepath.Join(c.root, file))
		require.NoError(t, err)
		text = []byte(strings.ReplaceAll(string(text), "MostCharge(", "LargestCharge("))
		require.NoError(t, os.WriteFile(filepath.Join(c.root, file), text, 0o644))
	}
	c.write("CHANGELOG.md", "# Changelog\n\n## Unreleased\n\n- another name.\n")
	c.mustRelease("v0.2.0")
	for _, folder := range modules {
		u.publish(c, folder, "v0.2.0")
	}
	u.must(ofFleet, "get", root+"@v0.2.0")
	out, err := u.run(ofFleet, "build", "-o", os.DevNull, ".")
	require.Error(t, err)
	assert.Contains(t, out, root+"/fleet@v0.1.0", "the module to upgrade is named")
	u.must(ofFleet, "get", root+"/fleet@v0.2.0")
	u.must(ofFleet, "build", "-o", os.DevNull, ".")
}
