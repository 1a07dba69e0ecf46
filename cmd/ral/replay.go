package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ral-limiter/ral/cmd/ral/internal/replay"
	"github.com/ral-limiter/ral/cmd/ral/internal/report"
	"github.com/ral-limiter/ral/limitfile"
	"github.com/ral-limiter/ral/policy"
)

// errFailIf makes the exit status 3.
var errFailIf = errors.New("--fail-if holds")

type replayed struct {
	Limits  []string       `json:"limits"`
	Against []string       `json:"against,omitempty"`
	Source  source         `json:"source"`
	Result  *replay.Result `json:"result"`
	Notes   []string       `json:"notes"`
	Failed  string         `json:"failed,omitempty"`
}

func runReplay(ctx context.Context, args []string, stdin io.Reader, out, problems io.Writer) error {
	var (
		l      logs
		config replay.Config
		checks []condition
	)
	flags := l.flags("replay", problems)
	var fileNotes []string
	flags.Func("limit", "a `limit` as text, such as 'funnel 100, 10/s'; if it is given again, all hold", addLimit(&config.Limits))
	flags.Func("file", "a `file` of limits, which all hold, or file:name for one of them", addFile(&config.Limits, &fileNotes))
	flags.Func("against", "a `limit` to compare with, or a file as for --file; if it is given again, all hold; default the log's own refusals", func(text string) error {
		err := addLimit(&config.Against)(text)
		if err == nil {
			return nil
		}
		fileErr := addFile(&config.Against, &fileNotes)(text)
		if errors.Is(fileErr, os.ErrNotExist) {
			return fmt.Errorf("it is no file of limits, and as a limit: %w", err)
		}
		return fileErr
	})
	flags.Func("state", "a `file` that the recorded engine was loaded from; keys of a record that shows keys begin with it; one for each limit", func(path string) error {
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		states, err := replay.ReadState(file)
		config.States = append(config.States, states...)
		return err
	})
	flags.BoolVar(&config.Retries, "retries", false, "also let refused requests come again when the limit allows")
	flags.Func("fail-if", "exit with status 3 if the `condition` holds, such as 'newly refused keys > 0.1%'; may be given again, and one must hold", func(text string) error {
		var check condition
		err := check.UnmarshalText([]byte(text))
		checks = append(checks, check)
		return err
	})
	if err := l.parse(flags, args); err != nil {
		return err
	}
	result, err := l.replay(ctx, config, stdin, problems)
	if err != nil {
		return err
	}
	d := replayed{Limits: texts(config.Limits), Against: texts(config.Against), Source: l.source, Result: result}
	for i := range d.Result.Top {
		d.Result.Top[i].Key = l.name(d.Result.Top[i].Key)
	}
	d.Notes = slices.Concat(notesOf("source", &l.source), fileNotes,
		notesOf("scenarios", map[string]any{"Result": result, "Retries": config.Retries, "MaxTries": replay.MaxTries}), notesOf("result", result))
	if len(config.States) > 0 && result.Loaded == 0 {
		d.Notes = append(d.Notes, "No key began as in the state, which has no limit with the text of one that is replayed.")
	}
	var failed []string
	for _, check := range checks {
		if holds, figure := check.holds(&d); holds {
			failed = append(failed, figure)
		}
	}
	d.Failed = strings.Join(failed, ", ")
	if err := l.write(out, d, d.report()); err != nil {
		return err
	}
	if d.Failed != "" {
		return fmt.Errorf("%w: %s", errFailIf, d.Failed)
	}
	return nil
}

func addLimit(to *[]policy.Policy) func(text string) error {
	return func(text string) error {
		limit, err := policy.Parse(text)
		if err == nil {
			*to = append(*to, limit)
		}
		return err
	}
}

// addFile adds the limits of a file, or the limit whose name follows the file's, behind a colon. It notes the settings that
// are left out.
func addFile(to *[]policy.Policy, notes *[]string) func(text string) error {
	return func(text string) error {
		path, name := text, ""
		if i := strings.LastIndexByte(text, ':'); i > 0 {
			if _, err := os.Stat(text); err != nil {
				path, name = text[:i], text[i+1:]
			}
		}
		all, err := limitfile.Read(path)
		before := len(*to)
		for _, limit := range all {
			if name != "" && name != limit.Name {
				continue
			}
			*to = append(*to, limit.Policy)
			var settings []string
			changes, _ := limitfile.Compare([]limitfile.Limit{{Name: limit.Name, Policy: limit.Policy}}, []limitfile.Limit{limit})
			for _, change := range changes {
				// warn-at decides nothing.
				if change.Setting != "" && change.Setting != "warn-at" {
					settings = append(settings, change.Setting)
				}
			}
			if len(settings) > 0 {
				*notes = append(*notes, fmt.Sprintf("Left out of limit %s in %s: %s. The limit itself holds for each key and refuses.",
					limit.Name, report.Printable(path), strings.Join(settings, ", ")))
			}
		}
		if err == nil && len(*to) == before {
			return errors.New(strings.TrimSuffix(fmt.Sprintf("%s has no limit %.64q", path, name), ` ""`))
		}
		return err
	}
}

func texts(limits []policy.Policy) (all []string) {
	for _, limit := range limits {
		all = append(all, limit.String())
	}
	return all
}

// condition compares a figure with a bound. The zero condition never holds.
type condition struct {
	text      string
	figure    string
	isStrict  bool
	bound     float64
	isPercent bool
}

var conditionForm = regexp.MustCompile(`^\s*((?:refused|newly refused|newly admitted) (?:requests|keys)|unreadable lines)\s*(>=?)\s*(\d+(?:\.\d+)?)\s*(%?)\s*$`)

// UnmarshalText reads a condition such as "newly refused keys > 0.1%".
func (c *condition) UnmarshalText(text []byte) error {
	m := conditionForm.FindSubmatch(text)
	if m == nil {
		return errors.New("want refused, newly refused or newly admitted, then requests or keys, or want unreadable lines; then > or >=, and a number or a percentage up to 100%")
	}
	bound, err := strconv.ParseFloat(string(m[3]), 64)
	if len(m[4]) > 0 && bound > 100 {
		return fmt.Errorf("the bound is %s%%, want a percentage up to 100%%", m[3])
	}
	*c = condition{text: string(text), figure: string(m[1]), isStrict: len(m[2]) == 1, bound: bound, isPercent: len(m[4]) > 0}
	return err
}

// holds reports whether the condition holds, and its figure. The scenario with the most refusals counts, except for
// AllComeAgain, where a request counts each time that it comes.
func (c *condition) holds(replayed *replayed) (holds bool, figure string) {
	result := replayed.Result
	unreadable, refused := int64(len(replayed.Source.Broken)), replay.Change{}
	for _, u := range replayed.Source.Unreadable {
		unreadable += u.Lines
	}
	for _, scenario := range result.Scenarios {
		if scenario.Name != replay.ComparedWith && scenario.Name != replay.AllComeAgain {
			refused = replay.Change{Requests: max(refused.Requests, scenario.Refused), Keys: max(refused.Keys, scenario.RefusedKeys)}
		}
	}
	figures := map[string]struct{ n, all int64 }{
		"unreadable lines": {unreadable, replayed.Source.Lines},
		"refused requests": {refused.Requests, result.Requests}, "refused keys": {refused.Keys, result.Keys},
		"newly refused requests": {result.Newly.Requests, result.Requests}, "newly refused keys": {result.Newly.Keys, result.Keys},
		"newly admitted requests": {result.Lifted.Requests, result.Requests}, "newly admitted keys": {result.Lifted.Keys, result.Keys},
	}
	n, all := figures[c.figure].n, figures[c.figure].all
	have := float64(n)
	if c.isPercent {
		have = 100 * have / float64(max(all, 1))
	}
	return have > c.bound || !c.isStrict && have == c.bound, fmt.Sprintf("%s: %d (%s), and the condition is %s", c.figure, n, part(n, all), c.text)
}

const chartRows = 32

// report returns the replay's tables and chart.
func (d *replayed) report() *report.Report {
	result := d.Result
	out := &report.Report{
		Title: "Replay of " + strings.Join(d.Limits, " and "),
		Lead:  []string{d.Source.lead(), requestsLead(result)},
		Notes: d.Notes,
	}
	if d.Failed != "" {
		out.Lead = append(out.Lead, "FAILED: "+d.Failed)
	}
	answers := report.Table{{"", ">REQUESTS", ">REFUSED", ">", ">KEYS REFUSED", ">", "BY LIMIT"}}
	for _, scenario := range result.Scenarios {
		var by []string
		for _, bound := range scenario.Bound {
			by = append(by, fmt.Sprintf("%s: %d", bound.Limit, bound.Refused))
		}
		answers.Add(scenario.Name, scenario.Requests, scenario.Refused, part(scenario.Refused, scenario.Requests), scenario.RefusedKeys, part(scenario.RefusedKeys, result.Keys), strings.Join(by, "; "))
	}
	answers.Add("the log itself", result.Requests, result.WasRefused, part(result.WasRefused, result.Requests), result.WasRefusedKeys, part(result.WasRefusedKeys, result.Keys), fmt.Sprintf("%d by both", result.Both))
	out.Parts = append(out.Parts, report.Part{Title: "Refused", About: "requests and keys", Table: answers})
	for _, scenario := range result.Scenarios {
		switch {
		case scenario.Name == replay.AllComeAgain:
			out.Parts[0].About += fmt.Sprintf("; of those that come again %d pass later, and %d give up", scenario.Late, scenario.GaveUp)
		case scenario.Name == replay.AsLogged && scenario.Delayed > 0:
			out.Parts[0].About += fmt.Sprintf("; %d more wait in the queue", scenario.Delayed)
		}
	}
	before := "the log"
	if len(d.Against) > 0 {
		before = strings.Join(d.Against, " and ")
	}
	changes := report.Table{{"", ">REQUESTS", ">KEYS"}}
	changes.Add("newly refused", result.Newly.Requests, result.Newly.Keys)
	changes.Add("newly admitted", result.Lifted.Requests, result.Lifted.Keys)
	out.Parts = append(out.Parts, report.Part{Title: "Changes", About: "against " + before, Table: changes})
	if len(result.Chart.Slots) > 0 {
		out.Parts = append(out.Parts, report.Part{Title: "When", About: "requests, and those that are refused", Chart: d.chart()})
	}
	if len(result.Top) > 0 {
		keys := report.Table{{"KEY", ">REQUESTS", ">REFUSED", ">", ">BY THE LOG"}}
		for _, key := range result.Top {
			keys.Add(key.Key, key.Requests, key.Refused, part(int64(key.Refused), int64(key.Requests)), key.WasRefused)
		}
		out.Parts = append(out.Parts, report.Part{Title: "Keys", About: "refused most", Table: keys})
	}
	return out
}

func requestsLead(result *replay.Result) string {
	return fmt.Sprintf("%s of %s, from %s to %s UTC", many(result.Requests, "request"), many(result.Keys, "key"), result.From.Format(time.DateTime), result.To.Format(time.DateTime))
}

// chart has a row for each slot.
func (d *replayed) chart() (out report.Chart) {
	chart := d.Result.Chart.Within(chartRows)
	out.Whole, out.Marked = "REQUESTS", "REFUSED"
	form := time.DateTime
	if d.Result.From.Format(time.DateOnly) == d.Result.To.Format(time.DateOnly) {
		form = time.TimeOnly
	}
	for i, slot := range chart.Slots {
		begin := time.Unix(0, (chart.First+int64(i))*int64(chart.Width)).UTC()
		out.Bars = append(out.Bars, report.Bar{Label: begin.Format(form), Whole: slot.Requests, Marked: slot.Refused})
	}
	return out
}
