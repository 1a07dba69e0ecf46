package page

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/ral-limiter/ral/cmd/ralbench/internal/report"
)

// plain is an argument that a shell takes as it is.
var plain = regexp.MustCompile(`^[-\w./:=,+@%]+$`)

// again returns the commands that repeat the run.
func again(document report.Document) (commands []string) {
	run := "go run ./cmd/ralbench"
	switch m := document.Machine.Commit; {
	case document.Machine.Build() == m:
		run = "go run github.com/ral-limiter/ral/cmd/ralbench@" + m
	case m != report.Unknown:
		commands = append(commands, "git checkout "+strings.TrimSuffix(m, "+changes"))
	}
	for _, arg := range document.Settings.Args {
		if !plain.MatchString(arg) {
			arg = strconv.Quote(arg)
		}
		run += " " + arg
	}
	if document.Machine.GOGC != "" {
		run = "GOGC=" + document.Machine.GOGC + " " + run
	}
	return append(commands, run)
}
