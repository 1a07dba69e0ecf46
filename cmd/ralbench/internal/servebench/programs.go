package servebench

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ral-limiter/ral/bench"
)

const (
	raldModule      = "github.com/ral-limiter/ral/cmd/rald"
	floorPackage    = "github.com/ral-limiter/ral/cmd/ralbench/internal/servebench/floor"
	referenceModule = "github.com/envoyproxy/ratelimit"
	ghzProgram      = "github.com/bojand/ghz/cmd/ghz@v0.93.0"
)

// Missing returns an error if a needed program is not installed. Other programs are built.
func Missing(workloads []bench.Workload) error {
	need := map[string]string{"go": "golang", "redis-server": "redis-server"}
	for _, w := range workloads {
		switch {
		case !isEnvoy(w.Name):
			need["redis-benchmark"] = "redis-tools"
		case w.Name == Envoy:
			need["h2load"] = "nghttp2-client"
		}
	}
	for program, from := range need {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("there is no %s here (Debian, Ubuntu: apt-get install %s): %w", program, from, err)
		}
	}
	return nil
}

// build builds the programs that the workloads need into a directory: rald, floor, service_cmd, which
// is the reference, and ghz.
func build(ctx context.Context, dir string, workloads []bench.Workload) error {
	source, err := goTool(ctx, "", nil, "list", "-m", "-f", "{{.Dir}}", raldModule)
	if err != nil || source == "" {
		return fmt.Errorf("rald is built from a clone of the repository; run ralbench there: %w", err)
	}
	if _, err = goTool(ctx, source, nil, "build", "-o", dir+string(filepath.Separator), raldModule, floorPackage); err != nil {
		return fmt.Errorf("rald and the floor cannot be built: %w", err)
	}
	if !slices.ContainsFunc(workloads, func(w bench.Workload) bool { return isEnvoy(w.Name) }) {
		return nil
	}
	version, err := goTool(ctx, source, nil, "list", "-m", "-f", "{{.Version}}", referenceModule)
	if err != nil {
		return fmt.Errorf("the version of %s: %w", referenceModule, err)
	}
	for _, program := range []string{referenceModule + "/src/service_cmd@" + version, ghzProgram} {
		if _, err := goTool(ctx, "", []string{"GOBIN=" + dir}, "install", program); err != nil {
			return fmt.Errorf("%s cannot be built: %w", program, err)
		}
	}
	return nil
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
