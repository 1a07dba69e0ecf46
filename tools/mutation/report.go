package main

import (
	"fmt"
	"runtime"
	"strings"
)

// reportFile is where the results are written, from the root of the repository.
const reportFile = "docs/mutations.md"

// row is a line of the table.
func (r result) row() string {
	return fmt.Sprintf("| %s | %s | `%s.%s` | %.1f |\n", r.name, r.without, r.where(), r.killer, r.took.Seconds())
}

// rows reads the lines of a table that was written before, by the mutants' names.
func rows(table string) map[string]string {
	found := map[string]string{}
	for line := range strings.Lines(table) {
		if cells := strings.Split(line, " | "); len(cells) == 4 && strings.HasPrefix(line, "| ") {
			found[strings.TrimPrefix(cells[0], "| ")] = line
		}
	}
	return found
}

// report is the table of results. Mutants that were not run keep the line that they
// have in the table from before.
func report(results []result, before string) string {
	lines := rows(before)
	for _, r := range results {
		lines[r.name] = r.row()
	}
	var b strings.Builder
	fmt.Fprintf(&b, `# Mechanisms, and the tests that miss them

Each row is a safety mechanism that was taken out of the code, what users would meet
without it, and the first test that failed then. A mechanism that no test misses is a
defect: of the tests, or because it is not needed.

`+"`go run ./tools/mutation`"+` wrote this; the exact changes are in `+"`tools/mutation/list_*.go`"+`. %d
mutants; the seconds include compiling. %s %s/%s.
`, len(all()), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	file := ""
	for _, m := range all() {
		line, ok := lines[m.name]
		if !ok {
			continue // not run yet, which a test notices
		}
		if m.file != file {
			file = m.file
			fmt.Fprintf(&b, "\n## %s\n\n| Taken out | Without it | Noticed by | Seconds |\n|---|---|---|---|\n", file)
		}
		b.WriteString(line)
	}
	return b.String()
}
