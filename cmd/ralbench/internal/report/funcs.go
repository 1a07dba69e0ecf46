package report

import (
	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/format"
)

// Funcs are the functions that the templates of the terminal and of the page call.
var Funcs = map[string]any{
	"rounds": RoundsText, "intro": Intro, "facts": Facts, "tables": Tables, "audits": Audits, "breaches": Breaches,
	"firstScreen": FirstScreen, "verdict": VerdictOf, "outcome": Outcome, "shortfalls": Shortfalls, "goalTable": GoalTable, "goalSummary": GoalSummary,
	"cores": CoresTable, "auditRows": AuditRows, "auditLine": AuditLine, "telling": IsTelling,
	"medians":  func(w bench.WorkloadReport) string { return say("medians", Rounds(w)) },
	"glossary": func() string { return Glossary },
	"beside":   func(document Document) Table { t, _ := Beside(document); return t },
	"signs":    func() []string { return []string{Mark, InexactSign, BrokenSign} },
	"numbers":  format.Numbers, "plural": format.Plural, "sentence": format.Sentence, "short": format.Short,
}
