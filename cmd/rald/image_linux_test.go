package main

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/testkit/must"
)

// image builds an image's root directory: it carries out the Dockerfile's instructions, with a folder in
// place of the container.
type image struct {
	t       *testing.T
	context string
	// build is the folder in place of /.
	build string
	// root is the folder of the last stage.
	root   string
	args   []string
	labels string
	user   uint32
}

func (i *image) shell(dir, line string) {
	i.t.Helper()
	cmd := exec.Command("sh", "-ec", line)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), i.args...)
	cmd.Env = append(cmd.Env, "GOFLAGS=", "GOWORK=")
	said, err := cmd.CombinedOutput()
	require.NoError(i.t, err, "%s\n%s", line, said)
}

// copyContext copies what Docker would send: the files of the clone without those that are ignored.
func (i *image) copyContext(to string) {
	i.t.Helper()
	i.shell(i.context, "git ls-files -z | xargs -0 cp --parents -t "+to)
	for line := range strings.Lines(deployedText(i.t, "Dockerfile.dockerignore")) {
		if name := strings.TrimSpace(line); name != "" && !strings.HasPrefix(name, "#") {
			require.NoError(i.t, os.RemoveAll(filepath.Join(to, name)))
		}
	}
}

func (i *image) make() {
	i.t.Helper()
	source := filepath.Join(i.build, "src")
	context := filepath.Join(i.t.TempDir(), "context")
	for _, folder := range []string{source, context, filepath.Join(i.build, "out"), i.root} {
		require.NoError(i.t, os.MkdirAll(folder, 0o755))
	}
	i.copyContext(context)
	stage := 0
	for line := range strings.Lines(deployedText(i.t, "Dockerfile")) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		words := strings.Fields(rest)
		switch word {
		case "FROM":
			stage++
		case "RUN":
			require.Equal(i.t, 1, stage, "the last stage has no shell")
			i.shell(source, strings.ReplaceAll(rest, "/out", filepath.Join(i.build, "out")))
		case "LABEL":
			i.labels = os.Expand(rest, func(name string) string {
				at := slices.IndexFunc(i.args, func(arg string) bool { return strings.HasPrefix(arg, name+"=") })
				return strings.TrimPrefix(i.args[at], name+"=")
			})
		case "COPY":
			i.copy(stage, context, source, words)
		}
	}
}

func (i *image) copy(stage int, context, source string, words []string) {
	i.t.Helper()
	from, to := context, source
	if words[0] == "--from=build" {
		require.Equal(i.t, 2, stage)
		from, to, words = i.build, i.root, words[1:]
	}
	chown := ""
	if owner, ok := strings.CutPrefix(words[0], "--chown="); ok {
		chown, words = owner, words[1:]
	}
	last := len(words) - 1
	to = filepath.Join(to, words[last])
	if strings.HasSuffix(words[last], "/") {
		require.NoError(i.t, os.MkdirAll(to, 0o755))
	}
	require.NoError(i.t, os.MkdirAll(filepath.Dir(to), 0o755))
	for _, name := range words[:last] {
		found := filepath.Join(from, name)
		switch {
		case name == ".":
			found += "/."
		// The build's image is Debian's, and this machine takes its place.
		case strings.HasPrefix(name, "/etc/"):
			found = name
		}
		i.shell(i.context, "cp -r "+found+" "+to)
	}
	if chown != "" {
		i.shell(i.context, "chown -R "+chown+" "+to)
	}
}

// command returns a command in the image.
func (i *image) command(env []string, args ...string) *exec.Cmd {
	cmd := exec.Command("/rald", args...)
	cmd.Dir, cmd.Env = "/", append(strings.Fields(instructions(i.t, "ENV")[0]), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: i.root, Credential: &syscall.Credential{Uid: i.user, Gid: i.user}}
	return cmd
}

// Promise: The image needs nothing but its own files: it serves, is healthy, and knows every time zone and its version.
func TestImageRunsAloneWithProcesses(t *testing.T) {
	needs(t, "the steps of a Dockerfile, which compile rald anew")
	if os.Geteuid() != 0 {
		t.Skip("only root can run rald in another root directory")
	}
	// t.TempDir is closed to other users.
	folder := must.Get(os.MkdirTemp("", "image"))
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(folder)) })
	require.NoError(t, os.Chmod(folder, 0o755))
	i := &image{
		t: t, context: must.Get(filepath.Abs("../..")), build: filepath.Join(folder, "build"), root: filepath.Join(folder, "root"),
		args: []string{"VERSION=v1.2.3", "REVISION=abc"}, user: 65532,
	}
	require.Equal(t, []string{"65532:65532"}, instructions(t, "USER"))
	i.make()
	for _, label := range []string{"version=v1.2.3", "revision=abc", "source=https://github.com/ral-limiter/ral", "licenses=MIT"} {
		assert.Contains(t, i.labels+" ", " org.opencontainers.image."+label+" ")
	}
	assert.Equal(t, "golang:"+regexp.MustCompile(`^1\.\d+`).FindString(goVersion(t)), strings.Fields(instructions(t, "FROM")[0])[0])

	program := must.Get(elf.Open(filepath.Join(i.root, "rald")))
	defer program.Close()
	for _, part := range program.Progs {
		assert.NotEqual(t, elf.PT_INTERP, part.Type, "it needs a dynamic loader")
	}
	said, err := i.command(nil, "version").CombinedOutput()
	require.NoError(t, err, string(said))
	assert.Regexp(t, `^rald v1\.2\.3, revision abc, go`, string(said))

	write(t, i.root, "etc/rald/limits.yaml", "limits:\n  plan: window 10000/month in Europe/Berlin\n  other: window 5/day in Pacific/Kiritimati\n")
	i.shell(i.root, "chmod -R a+rX etc")
	said, err = i.command(nil, "check", "/etc/rald").CombinedOutput()
	require.NoError(t, err, string(said))
	s := &server{addr: freeAddr(t)}
	env := []string{"RALD_LISTEN=" + s.addr, "RALD_ADMIN=" + freeAddr(t), "RALD_INSECURE_NETWORK=true"}
	s.run(t, i.command(env, "/etc/rald"))
	s.untilListens(t)
	said, err = i.command(env, "health").CombinedOutput()
	assert.NoError(t, err, string(said))
	s.end(t)
	assert.NotEmpty(t, must.Get(os.ReadDir(filepath.Join(i.root, "var/lib/rald"))), "the state is saved at the end")
}

// goVersion returns the language version of rald's module.
func goVersion(t *testing.T) string {
	t.Helper()
	found := regexp.MustCompile(`(?m)^go (.*)$`).FindSubmatch(must.Get(os.ReadFile("go.mod")))
	require.NotNil(t, found)
	return string(found[1])
}
