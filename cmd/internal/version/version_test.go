package version

import (
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestLineNamesVersionRevisionAndGo(t *testing.T) {
	info := &debug.BuildInfo{GoVersion: "go1.25.1", Main: debug.Module{Version: "v0.1.0"}}
	assert.Equal(t, "rald v0.1.0, go1.25.1\n", line("rald", info))
	info.Main.Version = ""
	info.Settings = []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "false"}}
	assert.Equal(t, "ral (devel), revision abc, go1.25.1\n", line("ral", info))
	info.Settings[1].Value = "true"
	assert.Equal(t, "ral (devel), revision abc with changes, go1.25.1\n", line("ral", info))
	assert.Contains(t, Line("ral"), "ral ")
}

// An image's build has no Git.
func TestLinkerNamesABuildWithoutGit(t *testing.T) {
	release, revision = "v0.2.0", "def"
	t.Cleanup(func() { release, revision = "", "" })
	info := &debug.BuildInfo{GoVersion: "go1.25.1", Main: debug.Module{Version: "(devel)"}}
	assert.Equal(t, "rald v0.2.0, revision def, go1.25.1\n", line("rald", info))
	info.Settings = []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}}
	assert.Equal(t, "rald v0.2.0, revision abc, go1.25.1\n", line("rald", info))
}

func TestAskedIsOneWord(t *testing.T) {
	for _, args := range [][]string{{"version"}, {"-version"}, {"--version"}} {
		assert.True(t, Asked(args), args)
	}
	for _, args := range [][]string{nil, {"top"}, {"top", "version"}, {"version", "top"}} {
		assert.False(t, Asked(args), args)
	}
}
