package main

import (
	_ "embed"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/fleetbench"
	"github.com/ral-limiter/ral/cmd/ralbench/format"
	"github.com/ral-limiter/ral/cmd/ralbench/peers"
	"github.com/ral-limiter/ral/cmd/ralbench/report"
	"github.com/ral-limiter/ral/cmd/ralbench/servebench"
	"github.com/ral-limiter/ral/cmd/ralbench/terminal"
)

//go:embed help.txt
var helpText string

// entry is a contender or a workload in the help.
type entry struct{ name, about string }

var helpTemplate = template.Must(template.New("").Funcs(template.FuncMap{"list": list}).Parse(helpText))

// help writes the most used flags, which fit a small terminal's screen, or all flags, workloads,
// contenders and columns.
func help(w io.Writer, all bool) error {
	others := func(w bench.Workload) bool { return w.Apart }
	data := map[string]any{
		"Budget": defaultBudget, "FullTime": fullTime(), "Rounds": defaultRounds, "Duration": defaultDuration,
		"FullRounds": fullRounds, "FullDuration": fullDuration, "Share": fleetShare, "FullShare": fleetFullShare,
		"Always": contendersOf(always()), "Nearest": contendersOf(candidates()[:peers.Nearest]), "Others": contendersOf(candidates()[peers.Nearest:]),
		"Workloads": workloadsOf(slices.DeleteFunc(bench.All(1), others)), "Calls": workloadsOf(bench.Calls(1)), "Peers": contendersOf(peers.Calls()),
		"Fleet": contendersOf(fleetbench.Contenders()), "FleetWorkloads": workloadsOf(fleetbench.Workloads(1)),
		"Servers": contendersOf(servebench.Contenders()), "ServeWorkloads": workloadsOf(servebench.Workloads(1)),
		"Glossary": report.Glossary,
	}
	name := "short"
	if all {
		name = "all"
	}
	return helpTemplate.ExecuteTemplate(w, name, data)
}

func contendersOf(all []bench.Contender) (entries []entry) {
	for _, c := range all {
		about := c.About
		if c.Like != "" {
			about = "beside " + c.Like + ": " + about
		}
		if c.Measure == nil || c.New == nil { // otherwise it stands there already
			entries = append(entries, entry{c.Name, about})
		}
	}
	return entries
}

func workloadsOf(all []bench.Workload) (entries []entry) {
	for _, w := range all {
		entries = append(entries, entry{w.Name, w.About})
	}
	return entries
}

// list returns padded names and their descriptions, in 80 columns.
func list(columns int, entries []entry) string {
	var b strings.Builder
	for _, e := range entries {
		b.WriteString(terminal.Wrapped(fmt.Sprintf("  %-*s  ", columns, e.name), e.about, 80))
	}
	return b.String()
}

func fullTime() string {
	s, err := parse([]string{"-full"})
	if err != nil {
		return "long"
	}
	return format.Minutes(max(bench.Estimate(s.workloads, s.contenders, s.options(s.progress(io.Discard))), time.Second))
}
