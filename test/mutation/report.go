package main

import (
	"fmt"
	"runtime"
	"strings"
)

func table(results []result, left []mutant) string {
	var builder strings.Builder
	fmt.Fprintf(&builder, "%d mutants; the seconds include compiling. %s %s/%s.\n\n", len(results), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	builder.WriteString("| Taken out | Of | Without it | Noticed by | Seconds |\n|---|---|---|---|---|\n")
	for _, result := range results {
		noticed := "**nothing**"
		if result.killer != "" {
			noticed = fmt.Sprintf("`%s.%s`", result.pkg, result.killer)
		}
		fmt.Fprintf(&builder, "| %s | %s | %s | %s | %.1f |\n", result.name, strings.Join(result.changes, ", "), result.without, noticed, result.took.Seconds())
	}
	if len(left) > 0 {
		fmt.Fprintf(&builder, "\n%d left out:\n\n", len(left))
		for _, mutant := range left {
			fmt.Fprintf(&builder, "- %s (%s)\n", mutant.name, strings.Join(mutant.changes, ", "))
		}
	}
	return builder.String()
}
