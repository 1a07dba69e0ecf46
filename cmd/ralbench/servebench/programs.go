package servebench

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/ral-limiter/ral/bench"
)

const (
	raldModule      = "github.com/ral-limiter/ral/cmd/rald"
	floorPackage    = "github.com/ral-limiter/ral/cmd/ralbench/servebench/floor"
	referenceModule = "github.com/envoyproxy/ratelimit"
	ghzProgram      = "github.com/bojand/ghz/cmd/ghz@v0.93.0"
)

// programs are the paths of the programs of a run, empty if not needed.
type programs struct {
	rald, floor, reference, ghz string
}

// Missing returns an error if a needed program is not installed. Other programs are built.
func Missing(workloads []bench.Workload) error {
	need := map[string]string{"go": "Go", "redis-server": "redis-server"}
	if has(workloads, func(name string) bool { return !isEnvoy(name) }) {
		need["redis-benchmark"] = "redis-tools"
	}
	if has(workloads, func(name string) bool { return name == Envoy }) {
		need["h2load"] = "nghttp2-client"
	}
	for program, from := range need {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("there is no %s here: install %s (Debian, Ubuntu: apt-get install %s): %w", program, from, strings.ToLower(from), err)
		}
	}
	return nil
}

// build builds the programs that the workloads need into a directory.
func build(ctx context.Context, dir string, workloads []bench.Workload) (p programs, err error) {
	source, err := goTool(ctx, "", nil, "list", "-m", "-f", "{{.Dir}}", raldModule)
	if err != nil || source == "" {
		return p, fmt.Errorf("rald is built from a clone of the repository; run ralbench there: %w", err)
	}
	p.rald = filepath.Join(dir, "rald")
	if _, err = goTool(ctx, source, nil, "build", "-o", p.rald, "."); err != nil {
		return p, fmt.Errorf("rald cannot be built: %w", err)
	}
	p.floor = filepath.Join(dir, "floor")
	if _, err = goTool(ctx, source, nil, "build", "-o", p.floor, floorPackage); err != nil {
		return p, fmt.Errorf("the floor cannot be built: %w", err)
	}
	if !has(workloads, isEnvoy) {
		return p, nil
	}
	version, err := goTool(ctx, source, nil, "list", "-m", "-f", "{{.Version}}", referenceModule)
	if err != nil {
		return p, fmt.Errorf("the version of %s: %w", referenceModule, err)
	}
	for _, program := range []string{referenceModule + "/src/service_cmd@" + version, ghzProgram} {
		if _, err := goTool(ctx, "", []string{"GOBIN=" + dir}, "install", program); err != nil {
			return p, fmt.Errorf("%s cannot be built: %w", program, err)
		}
	}
	p.reference, p.ghz = filepath.Join(dir, "service_cmd"), filepath.Join(dir, "ghz")
	return p, nil
}

// goTool runs the go command and returns its output.
func goTool(ctx context.Context, dir string, env []string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	return outputOf(cmd)
}

// outputOf runs a command and returns its output. An error contains its standard error.
func outputOf(cmd *exec.Cmd) (string, error) {
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s%s", filepath.Base(cmd.Path), err, out, problems.String())
	}
	return strings.TrimSpace(string(out)), nil
}
