package main

import (
	"fmt"
	"runtime"
	"strings"
	"time"
)

// reportFile is where the results are written, from the root of the repository.
const reportFile = "docs/mutations.md"

// report is the table of results.
func report(results []result) string {
	var b strings.Builder
	var sum time.Duration
	for _, r := range results {
		sum += r.took
	}
	fmt.Fprintf(&b, `# Mechanisms, and the tests that miss them

Each row is a safety mechanism that was taken out of the code, what users would meet
without it, and the first test that failed then. A mechanism that no test misses is a
defect: of the tests, or because it is not needed.

`+"`go run ./tools/mutation`"+` wrote this; the exact changes are in `+"`tools/mutation/list_*.go`"+`. %d
mutants, %.0f seconds of tests, compiling included, %s %s/%s.
`, len(results), sum.Seconds(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	file := ""
	for _, r := range results {
		if r.file != file {
			file = r.file
			fmt.Fprintf(&b, "\n## %s\n\n| Taken out | Without it | Noticed by | Seconds |\n|---|---|---|---|\n", file)
		}
		fmt.Fprintf(&b, "| %s | %s | `%s.%s` | %.1f |\n", r.name, r.without, r.where(), r.killer, r.took.Seconds())
	}
	return b.String()
}
