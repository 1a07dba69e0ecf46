package report

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/ral-limiter/ral/bench"
)

// WriteBenchmarks writes the document in the format of go test -bench, for benchstat: a line for
// each round of each contender.
func (d Document) WriteBenchmarks(w io.Writer) error {
	b := bufio.NewWriter(w)
	m := d.Machine
	line := func(text string) { fmt.Fprintln(b, strings.Join(strings.Fields(text), " ")) }
	// A comment, since benchstat separates runs with different keys.
	line("# ralbench of commit " + m.Commit + ", " + m.Go)
	line("goos: " + m.OS)
	line("goarch: " + m.Arch)
	line("cpu: " + m.CPU)
	line("Unit ops/s better=higher")
	for _, wl := range d.Workloads {
		for _, r := range wl.Results {
			name := fmt.Sprintf("BenchmarkCall/workload=%s/limiter=%s-%d", part(wl.Name), part(r.Contender), wl.CPU)
			for i, pass := range r.Rounds {
				fmt.Fprintf(b, "%s %d %s\n", name, pass.Calls, strings.Join(figures(r, i), " "))
			}
		}
	}
	return b.Flush()
}

// part returns a text as a part of a benchmark's name, without spaces and slashes.
func part(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), "_"), "/", ".")
}

// figures returns the figures of a round with their units, memory with the first.
func figures(r bench.Result, round int) []string {
	pass := r.Rounds[round]
	calls := float64(max(pass.Calls, 1))
	list := []string{
		fmt.Sprintf("%.2f ns/op", pass.NsPerOp()),
		fmt.Sprintf("%.0f ops/s", pass.OpsPerSecond()),
		fmt.Sprintf("%.2f B/op", float64(pass.Bytes)/calls),
		fmt.Sprintf("%.4f allocs/op", float64(pass.Allocs)/calls),
	}
	if round < len(r.LatencyRounds) {
		l := r.LatencyRounds[round]
		list = append(list, fmt.Sprintf("%d p50-ns %d p99-ns %d p99.9-ns", l.P50, l.P99, l.P999))
	}
	if r.Memory != nil && round == 0 {
		list = append(list, fmt.Sprintf("%.2f B/key %d GC-ns", r.Memory.BytesPerKey, r.Memory.GC))
		if !r.Memory.IdleUnknown {
			list = append(list, fmt.Sprintf("%d idle-B", r.Memory.IdleHeap))
		}
	}
	return list
}
