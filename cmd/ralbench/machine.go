package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// machine is where and with what the figures were measured.
type machine struct {
	CPU        string `json:"cpu"`
	Cores      int    `json:"cores"`
	GOMAXPROCS int    `json:"gomaxprocs"`
	OS         string `json:"os"`
	Arch       string `json:"arch"`
	Go         string `json:"go"`
	GOGC       string `json:"gogc,omitempty"` // only if set
	Commit     string `json:"commit"`
}

func thisMachine() machine {
	return machine{
		CPU:        processor(),
		Cores:      runtime.NumCPU(),
		GOMAXPROCS: runtime.GOMAXPROCS(0),
		OS:         runtime.GOOS,
		Arch:       runtime.GOARCH,
		Go:         runtime.Version(),
		GOGC:       os.Getenv("GOGC"),
		Commit:     commit(),
	}
}

const unknown = "unknown"

// processor returns the model of the processor, as the system names it.
func processor() string {
	switch runtime.GOOS {
	case "linux":
		info, _ := os.ReadFile("/proc/cpuinfo")
		for line := range strings.Lines(string(info)) {
			name, value, _ := strings.Cut(line, ":")
			switch strings.TrimSpace(name) {
			case "model name", "Model", "cpu model":
				return strings.TrimSpace(value)
			}
		}
	case "darwin":
		return output("sysctl", "-n", "machdep.cpu.brand_string")
	case "windows":
		if name := os.Getenv("PROCESSOR_IDENTIFIER"); name != "" {
			return name
		}
	}
	return unknown
}

// commit returns the commit that the command was built from, with "+changes" if
// there were others; from the repository that it is run in if the build does not
// tell.
func commit() string {
	revision, modified := "", false
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				revision = s.Value
			case "vcs.modified":
				modified = s.Value == "true"
			}
		}
	}
	if revision == "" {
		root := output("git", "rev-parse", "--show-toplevel")
		mod, _ := os.ReadFile(filepath.Join(root, "go.mod"))
		if !strings.Contains(string(mod), "module github.com/ral-limiter/ral\n") {
			return unknown
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

// output returns the first line that a command prints, or unknown.
func output(name string, args ...string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return unknown
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return strings.TrimSpace(line)
}
