package report

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/klauspost/cpuid/v2"

	"github.com/ral-limiter/ral/cmd/internal/version"
)

// Machine describes the machine and the program that measured.
type Machine struct {
	CPU        string `json:"cpu"`
	Cores      int    `json:"cores"`
	GOMAXPROCS int    `json:"gomaxprocs"`
	OS         string `json:"os"`
	Arch       string `json:"arch"`
	Go         string `json:"go"`
	GOGC       string `json:"gogc,omitempty"` // only if set
	// Commit is the version, such as v0.1.0, of a program that was installed.
	Commit string `json:"commit"`
}

// ThisMachine describes this machine and this program.
func ThisMachine() Machine {
	build, ok := debug.ReadBuildInfo()
	if !ok {
		build = new(debug.BuildInfo)
	}
	return Machine{
		CPU:        cmp.Or(cpuid.CPU.BrandName, Unknown),
		Cores:      runtime.NumCPU(),
		GOMAXPROCS: runtime.GOMAXPROCS(0),
		OS:         runtime.GOOS,
		Arch:       runtime.GOARCH,
		Go:         runtime.Version(),
		GOGC:       os.Getenv("GOGC"),
		Commit:     commit(build),
	}
}

// Unknown stands for values that the system does not tell.
const Unknown = "unknown"

// Build names the program: commit abc, or v0.1.0.
func (m Machine) Build() string {
	if strings.HasPrefix(m.Commit, "v") {
		return m.Commit
	}
	return "commit " + m.Commit
}

// commit returns the commit of the build, with "+changes" if modified, or its version if it was
// installed, or the commit of the repository here.
func commit(build *debug.BuildInfo) string {
	revision, modified := version.Revision(build)
	switch {
	case revision != "" && modified:
		return revision[:min(len(revision), 12)] + "+changes"
	case revision != "":
		return revision[:min(len(revision), 12)]
	case strings.HasPrefix(build.Main.Version, "v"):
		return build.Main.Version
	}
	mod, _ := os.ReadFile(filepath.Join(git("rev-parse", "--show-toplevel"), "go.mod"))
	if !strings.Contains(string(mod), "module github.com/ral-limiter/ral\n") {
		return Unknown
	}
	return git("describe", "--always", "--exclude=*", "--abbrev=12", "--dirty=+changes")
}

// git returns the line that git prints, or Unknown.
func git(args ...string) string {
	out, err := exec.Command("git", args...).Output()
	if err != nil {
		return Unknown
	}
	return strings.TrimSpace(string(out))
}
