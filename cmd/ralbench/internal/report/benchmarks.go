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
	writer := bufio.NewWriter(w)
	machine := d.Machine
	line := func(text string) { fmt.Fprintln(writer, strings.Join(strings.Fields(text), " ")) }
	// A comment, since benchstat separates runs with different keys.
	line("# ralbench, " + machine.Build() + ", " + machine.Go)
	line("goos: " + machine.OS)
	line("goarch: " + machine.Arch)
	line("cpu: " + machine.CPU)
	line("Unit ops/s better=higher")
	for _, wl := range d.Workloads {
		for _, result := range wl.Results {
			name := fmt.Sprintf("BenchmarkCall/workload=%s/limiter=%s-%d", part(wl.Name), part(result.Name), wl.CPU)
			for i, pass := range result.Rounds {
				fmt.Fprintf(writer, "%s %d %s\n", name, pass.Calls, strings.Join(roundFigures(result, i), " "))
			}
		}
	}
	return writer.Flush()
}

// part returns a text as a part of a benchmark's name, without spaces and slashes.
func part(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), "_"), "/", ".")
}

// roundFigures returns the figures of a round with their units.
func roundFigures(result bench.Result, round int) (list []string) {
	for _, column := range append(Columns[:len(Columns):len(Columns)], MemoryColumns...) {
		if value, ok := column.round(result, round); ok && column.Unit != "" {
			const digits = 1e4
			list = append(list, strconv.FormatFloat(math.Round(value*digits)/digits, 'f', -1, 64)+" "+column.Unit)
		}
	}
	return list
}
