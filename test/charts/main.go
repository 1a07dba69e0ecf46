// Charts draws the pictures of docs/choosing.md: the same traffic under each policy. The figures
// come from the policies themselves. It also draws those of docs/shares.md: the same tenants under four ways to share
// a limit.
//
//	go run ./test/charts            # draws test/charts/*.svg anew
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ral-limiter/ral/policy"
)

type subject struct {
	name   string
	policy policy.Policy
}

// subjects are the policies, each set to ten a second.
func subjects() []subject {
	const limit, per = 10, second
	return []subject{
		{"funnel", policy.Must(policy.Funnel(limit, limit, per))},
		{"fixed-window", policy.Must(policy.FixedWindow(limit, per))},
		{"sliding-window", policy.Must(policy.SlidingWindow(limit, per))},
		{"at-most", policy.Must(policy.AtMost(limit, per))},
		{"queue", policy.Must(policy.Queue(limit, limit, per))},
		{"bursty", policy.Must(policy.Bursty(limit, per, limit))},
		{"warming-up", policy.Must(policy.WarmingUp(limit, per, 2*second, 3))},
	}
}

func draw() (map[string][]byte, error) {
	pictures := map[string][]byte{}
	for _, subject := range subjects() {
		var svg bytes.Buffer
		if err := picture(&svg, subject.policy.String(), play(subject.policy, traffic())); err != nil {
			return nil, fmt.Errorf("%s: %w", subject.name, err)
		}
		pictures[subject.name+".svg"] = svg.Bytes()
	}
	for i, scene := range scenes() {
		svg, err := scene.picture()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", scene.name, err)
		}
		pictures[fmt.Sprintf("shares-%d.svg", i+1)] = svg
	}
	return pictures, nil
}

// folder is the folder of pictures, seen from the repository's root or from here.
func folder() string {
	if _, err := os.Stat("test/charts"); err == nil {
		return "test/charts"
	}
	return "."
}

func main() {
	pictures, err := draw()
	if err != nil {
		fmt.Fprintln(os.Stderr, "charts:", err)
		os.Exit(1)
	}
	for name, svg := range pictures {
		path := filepath.Join(folder(), name)
		if err := os.WriteFile(path, svg, 0o644); err != nil {
			fmt.Fprintf(os.Stderr, "charts: %v\nRun this from the root of the repository, or from test/charts.\n", err)
			os.Exit(1)
		}
		fmt.Println(path)
	}
}
