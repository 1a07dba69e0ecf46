package report

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"strconv"
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
	line("# ralbench, " + m.Build() + ", " + m.Go)
	line("goos: " + m.OS)
	line("goarch: " + m.Arch)
	line("cpu: " + m.CPU)
	line("Unit ops/s better=higher")
	for _, wl := range d.Workloads {
		for _, r := range wl.Results {
			name := fmt.Sprintf("BenchmarkCall/workload=%s/limiter=%s-%d", part(wl.Name), part(r.Name), wl.CPU)
			for i, pass := range r.Rounds {
				fmt.Fprintf(b, "%s %d %s\n", name, pass.Calls, strings.Join(roundFigures(r, i), " "))
			}
		}
	}
	return b.Flush()
}

// part returns a text as a part of a benchmark's name, without spaces and slashes.
func part(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), "_"), "/", ".")
}

// roundFigures returns the figures of a round with their units.
func roundFigures(r bench.Result, round int) (list []string) {
	for _, c := range append(Columns[:len(Columns):len(Columns)], MemoryColumns...) {
		if x, ok := c.round(r, round); ok && c.Unit != "" {
			const digits = 1e4
			list = append(list, strconv.FormatFloat(math.Round(x*digits)/digits, 'f', -1, 64)+" "+c.Unit)
		}
	}
	return list
}
