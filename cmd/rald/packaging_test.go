package main

import (
	"debug/elf"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var build = flag.Bool("build", false, "run the build line of the Dockerfile")

// dockerfile returns the Dockerfile's lines with an instruction, without it.
func dockerfile(t *testing.T, instruction string) (all []string) {
	text, err := os.ReadFile("packaging/Dockerfile")
	require.NoError(t, err)
	for _, found := range regexp.MustCompile(`(?m)^`+instruction+` (.*)$`).FindAllStringSubmatch(string(text), -1) {
		all = append(all, found[1])
	}
	require.NotEmpty(t, all, instruction)
	return all
}

// The program needs no system files, and the environment only a password.
func TestDockerfile(t *testing.T) {
	require.Equal(t, []string{`["/rald"]`}, dockerfile(t, "ENTRYPOINT"))
	image := environment(strings.Fields(dockerfile(t, "ENV")[0]))
	s, err := parse(nil, append(image, havePassword...), os.Stderr)
	require.NoError(t, err)
	require.Equal(t, []string{":7379", "/var/lib/rald"}, []string{s.listen, s.keys.Dir})
	_, err = parse(nil, image, os.Stderr)
	require.ErrorContains(t, err, "RALD_PASSWORD")

	if !*build {
		t.Skip("-build is not set: it takes half a minute of a processor")
	}
	out := filepath.Join(t.TempDir(), "rald")
	line := dockerfile(t, "RUN")[0]
	require.Equal(t, 1, strings.Count(line, "/out/rald"))
	cmd := exec.Command("sh", "-c", strings.Replace(line, "/out/rald", out, 1))
	cmd.Dir = "../.."
	said, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", said)
	if runtime.GOOS != "linux" {
		return
	}
	program, err := elf.Open(out)
	require.NoError(t, err)
	defer program.Close()
	libraries, err := program.ImportedLibraries()
	require.NoError(t, err)
	assert.Empty(t, libraries)
	for _, part := range program.Progs {
		assert.NotEqual(t, elf.PT_INTERP, part.Type, "it needs a dynamic loader")
	}
}
