package report

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

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
	if revision == "" && strings.HasPrefix(build.Main.Version, "v") {
		return build.Main.Version
	}
	if revision == "" {
		root := output("git", "rev-parse", "--show-toplevel")
		mod, _ := os.ReadFile(filepath.Join(root, "go.mod"))
		if !strings.Contains(string(mod), "module github.com/ral-limiter/ral\n") {
			return Unknown
		}
		revision = output("git", "rev-parse", "HEAD")
		modified = output("git", "status", "--porcelain") != ""
	}
	revision = revision[:min(len(revision), 12)]
	if modified {
		revision += "+changes"
	}
	return revision
}

// output returns the first line that a command prints, or Unknown.
func output(name string, args ...string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return Unknown
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return strings.TrimSpace(line)
}
