package main

import (
	_ "embed"
	"fmt"
	"io"
	"slices"
	"text/template"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/fleetbench"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/peers"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/report"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/servebench"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/terminal"
)

//go:embed help.txt
var helpText string

var helpTemplate = template.Must(template.New("").Funcs(template.FuncMap{"entry": entry}).Parse(helpText))

// help writes the most used flags, which fit a small terminal's screen, or all flags, workloads,
// contenders and columns.
func help(w io.Writer, all bool) error {
	others := func(w bench.Workload) bool { return w.Apart }
	data := map[string]any{
		"Budget": defaultBudget, "Rounds": defaultRounds, "Duration": defaultDuration,
		"FullRounds": fullRounds, "FullDuration": fullDuration,
		"Always": always(), "Nearest": candidates()[:peers.Nearest], "Others": candidates()[peers.Nearest:],
		"Workloads": slices.DeleteFunc(bench.All(1), others), "Calls": bench.Calls(1), "Peers": peers.Calls(),
		"Fleet": fleetbench.Contenders(), "FleetWorkloads": fleetbench.Workloads(1),
		"Servers": servebench.Contenders(), "ServeWorkloads": servebench.Workloads(1),
		"Glossary": report.Glossary,
	}
	name := "short"
	if all {
		name = "all"
	}
	return helpTemplate.ExecuteTemplate(w, name, data)
}

// entry returns a padded name and its description, in 80 columns.
func entry(columns int, name, about string) string {
	return terminal.Wrapped(fmt.Sprintf("  %-*s  ", columns, name), about, 80)
}
