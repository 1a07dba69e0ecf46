package report

import (
	_ "embed"
	"strings"
	"text/template"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/format"
)

// texts are the sentences of a report, each over several lines of the file.
//
//go:embed texts.txt
var texts string

var textTemplate = template.Must(template.New("").Funcs(template.FuncMap{
	"n": format.Thousands, "percent": format.Percent, "plural": format.Plural, "limit": format.Limit, "words": format.And,
	"overPasses": overPasses, "breaches": Breaches, "names": contendersOf,
	"rounds": Rounds, "cutShort": cutShort, "task": taskName,
	"passes": func(w bench.WorkloadReport) passes { return passesOf(w) }, "allPasses": func(document Document) passes { return passesOf(document.Workloads...) },
}).Parse(strings.ReplaceAll(texts, "\n", "")))

// say returns the text of that name. Executing fails only if the template is wrong, which tests would show.
func say(name string, data any) string {
	var text strings.Builder
	_ = textTemplate.ExecuteTemplate(&text, name, data)
	return text.String()
}

// passes counts the passes of workloads. Those that contenders measured themselves do not count.
type passes struct{ All, Disturbed, Rounds int }

func passesOf(workloads ...bench.WorkloadReport) (passes passes) {
	for _, w := range workloads {
		for _, result := range w.Results {
			passes.Rounds = max(passes.Rounds, len(result.Rounds))
			if !result.Outside {
				passes.All += len(result.Rounds)
				passes.Disturbed += result.Disturbed
			}
		}
	}
	return passes
}

// Busy reports whether other load disturbed more than a tenth of the passes.
func (p passes) Busy() bool { return p.Disturbed > p.All/10 }
