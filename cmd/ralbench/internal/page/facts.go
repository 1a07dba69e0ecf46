package page

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ral-limiter/ral/cmd/ralbench/internal/format"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/report"
)

func cpusOf(d report.Document) (cpus []int) {
	for _, w := range d.Workloads {
		cpus = append(cpus, w.CPU)
	}
	slices.Sort(cpus)
	return slices.Compact(cpus)
}

// again returns the commands that repeat the run.
func again(d report.Document) []string {
	s := d.Settings
	var commands []string
	program := "go run ./cmd/ralbench"
	switch m := d.Machine.Commit; {
	case d.Machine.Build() == m:
		program = "go run github.com/ral-limiter/ral/cmd/ralbench@" + m
	case m != report.Unknown:
		commands = append(commands, "git checkout "+strings.TrimSuffix(m, "+changes"))
	}
	rounds := fmt.Sprintf("-rounds %d -duration %v ", s.Rounds, s.Duration)
	if s.Brief {
		rounds = "" // they are the defaults; given, they would hold for all workloads
	}
	if s.Serve {
		return append(commands, fmt.Sprintf(program+" -serve -workloads %s %s-scale %v -json new.json -html new.html",
			strings.Join(s.Workloads, ","), rounds, s.Scale))
	}
	run := fmt.Sprintf(program+" -workloads %s -cpu %s %s-scale %v",
		strings.Join(s.Workloads, ","), format.Numbers(cpusOf(d), ","), rounds, s.Scale)
	if s.Fleet {
		run += fmt.Sprintf(" -fleet -share %v", s.Share)
		if s.Full {
			run += " -full"
		}
	}
	if s.Cores {
		run += " -cores"
	}
	if s.Budget > 0 {
		run += fmt.Sprintf(" -budget %v", s.Budget)
	}
	if d.Machine.GOGC != "" {
		run = "GOGC=" + d.Machine.GOGC + " " + run
	}
	return append(commands, run+" -json new.json -html new.html")
}
