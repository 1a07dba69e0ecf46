package page

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ral-limiter/ral/cmd/ralbench/format"
	"github.com/ral-limiter/ral/cmd/ralbench/report"
)

func setupOf(d report.Document) [][2]string {
	m, s := d.Machine, d.Settings
	rows := [][2]string{
		{"Commit", m.Commit},
		{"Measured", d.Time.Format("2006-01-02 15:04:05 MST") + ", took " + format.Short(d.Took.Round(1e8))},
		{"Processor", m.CPU},
		{"Cores", strconv.Itoa(m.Cores)},
		{"GOMAXPROCS", format.Numbers(s.CPUs, ",")},
		{"System", m.OS + "/" + m.Arch},
		{"Go", m.Go},
	}
	if m.GOGC != "" {
		rows = append(rows, [2]string{"GOGC", m.GOGC})
	}
	if d.Redis != "" {
		rows = append(rows, [2]string{"Redis", d.Redis + ", on the same machine"})
	}
	budget := "none"
	if s.Budget > 0 {
		budget = format.Short(s.Budget)
	}
	return append(rows,
		[2]string{"Rounds", fmt.Sprintf("%d, contenders interleaved; %v a turn", s.Rounds, s.Duration)},
		[2]string{"Scale", fmt.Sprintf("%v of the keys that the workloads should have", s.Scale)},
		[2]string{"Budget of time", budget},
	)
}

func cpusOf(d report.Document) (cpus []int) {
	for _, w := range d.Workloads {
		if !slices.Contains(cpus, w.CPU) {
			cpus = append(cpus, w.CPU)
		}
	}
	slices.Sort(cpus)
	return cpus
}

// again returns the commands that repeat the run.
func again(d report.Document) []string {
	s := d.Settings
	var commands []string
	if m := d.Machine.Commit; m != report.Unknown {
		commands = append(commands, "git checkout "+strings.TrimSuffix(m, "+changes"))
	}
	rounds := fmt.Sprintf("-rounds %d -duration %v ", s.Rounds, s.Duration)
	if s.Brief {
		rounds = "" // they are the defaults; given, they would hold for all workloads
	}
	if s.Serve {
		return append(commands, fmt.Sprintf("go run ./cmd/ralbench -serve -workloads %s %s-scale %v -json new.json -html new.html",
			strings.Join(s.Workloads, ","), rounds, s.Scale))
	}
	run := fmt.Sprintf("go run ./cmd/ralbench -workloads %s -cpu %s %s-scale %v",
		strings.Join(s.Workloads, ","), format.Numbers(cpusOf(d), ","), rounds, s.Scale)
	if s.Fleet {
		run += fmt.Sprintf(" -fleet -share %v", s.Share)
		if s.Full {
			run += " -full"
		}
	}
	if s.Budget > 0 {
		run += fmt.Sprintf(" -budget %v", s.Budget)
	}
	if d.Machine.GOGC != "" {
		run = "GOGC=" + d.Machine.GOGC + " " + run
	}
	return append(commands, run+" -json new.json -html new.html")
}
