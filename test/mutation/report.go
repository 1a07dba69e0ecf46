package main

import (
	"fmt"
	"runtime"
	"strings"
)

func table(results []result, left []mutant) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d mutants; the seconds include compiling. %s %s/%s.\n\n", len(results), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	b.WriteString("| Taken out | Of | Without it | Noticed by | Seconds |\n|---|---|---|---|---|\n")
	for _, r := range results {
		noticed := "**nothing**"
		if r.killer != "" {
			noticed = fmt.Sprintf("`%s.%s`", r.pkg, r.killer)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %.1f |\n", r.name, strings.Join(r.changes, ", "), r.without, noticed, r.took.Seconds())
	}
	if len(left) > 0 {
		fmt.Fprintf(&b, "\n%d left out:\n\n", len(left))
		for _, m := range left {
			fmt.Fprintf(&b, "- %s (%s)\n", m.name, strings.Join(m.changes, ", "))
		}
	}
	return b.String()
}
