package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// setupOf names the machine and the settings.
func setupOf(d document) [][2]string {
	m, s := d.Machine, d.Settings
	rows := [][2]string{
		{"Commit", m.Commit},
		{"Measured", d.Time.Format("2006-01-02 15:04:05 MST") + ", took " + short(d.Took.Round(1e8))},
		{"Processor", m.CPU},
		{"Cores", strconv.Itoa(m.Cores)},
		{"GOMAXPROCS", list(cpusOf(d))},
		{"System", m.OS + "/" + m.Arch},
		{"Go", m.Go},
	}
	if m.GOGC != "" {
		rows = append(rows, [2]string{"GOGC", m.GOGC})
	}
	if d.Fleet != nil {
		rows = append(rows, [2]string{"Redis", d.Fleet.Redis + ", on the same machine, over TCP"})
	}
	budget := "none"
	if s.Budget > 0 {
		budget = short(s.Budget)
	}
	return append(rows,
		[2]string{"Rounds", fmt.Sprintf("%d, contenders interleaved; %v a turn", s.Rounds, s.Duration)},
		[2]string{"Scale", fmt.Sprintf("%v of the keys that the workloads should have", s.Scale)},
		[2]string{"Budget of time", budget},
	)
}

// cpusOf returns the numbers of processors that were measured with.
func cpusOf(d document) (cpus []int) {
	for _, w := range d.Workloads {
		if !slices.Contains(cpus, w.CPU) {
			cpus = append(cpus, w.CPU)
		}
	}
	slices.Sort(cpus)
	return cpus
}

func list(numbers []int) string {
	var words []string
	for _, n := range numbers {
		words = append(words, strconv.Itoa(n))
	}
	return strings.Join(words, ",")
}

// again returns the commands that repeat the run.
func again(d document) []string {
	s := d.Settings
	var commands []string
	if m := d.Machine.Commit; m != unknown {
		commands = append(commands, "git checkout "+strings.TrimSuffix(m, "+changes"))
	}
	run := fmt.Sprintf("go run ./cmd/ralbench -workloads %s -cpu %s -rounds %d -duration %v -scale %v",
		strings.Join(s.Workloads, ","), list(cpusOf(d)), s.Rounds, s.Duration, s.Scale)
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

// glossary is what the help says of columns and method.
func glossary() string {
	var b strings.Builder
	help(&b)
	_, text, _ := strings.Cut(b.String(), "\nColumns:\n\n")
	text, _, _ = strings.Cut(text, "\nCtrl-C")
	return text
}

// sentence ends a line about something as a sentence.
func sentence(s string) string {
	if s == "" || strings.ContainsAny(s[len(s)-1:], ".?!") {
		return s
	}
	return s + "."
}
