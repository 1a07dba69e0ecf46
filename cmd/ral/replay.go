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
func (c *condition) holds(d *replayed) (holds bool, figure string) {
	r := d.Result
	unreadable, refused := int64(len(d.Source.Broken)), replay.Change{}
	for _, u := range d.Source.Unreadable {
		unreadable += u.Lines
	}
	for _, s := range r.Scenarios {
		if s.Name != replay.ComparedWith && s.Name != replay.AllComeAgain {
			refused = replay.Change{Requests: max(refused.Requests, s.Refused), Keys: max(refused.Keys, s.RefusedKeys)}
		}
	}
	figures := map[string]struct{ n, all int64 }{
		"unreadable lines": {unreadable, d.Source.Lines},
		"refused requests": {refused.Requests, r.Requests}, "refused keys": {refused.Keys, r.Keys},
		"newly refused requests": {r.Newly.Requests, r.Requests}, "newly refused keys": {r.Newly.Keys, r.Keys},
		"newly admitted requests": {r.Lifted.Requests, r.Requests}, "newly admitted keys": {r.Lifted.Keys, r.Keys},
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
	r := d.Result
	out := &report.Report{
		Title: "Replay of " + strings.Join(d.Limits, " and "),
		Lead:  []string{d.Source.lead(), requestsLead(r)},
		Notes: d.Notes,
	}
	if d.Failed != "" {
		out.Lead = append(out.Lead, "FAILED: "+d.Failed)
	}
	answers := report.Table{{"", ">REQUESTS", ">REFUSED", ">", ">KEYS REFUSED", ">", "BY LIMIT"}}
	for _, s := range r.Scenarios {
		var by []string
		for _, b := range s.Bound {
			by = append(by, fmt.Sprintf("%s: %d", b.Limit, b.Refused))
		}
		answers.Add(s.Name, s.Requests, s.Refused, part(s.Refused, s.Requests), s.RefusedKeys, part(s.RefusedKeys, r.Keys), strings.Join(by, "; "))
	}
	answers.Add("the log itself", r.Requests, r.WasRefused, part(r.WasRefused, r.Requests), r.WasRefusedKeys, part(r.WasRefusedKeys, r.Keys), fmt.Sprintf("%d by both", r.Both))
	out.Parts = append(out.Parts, report.Part{Title: "Refused", About: "requests and keys", Table: answers})
	for _, s := range r.Scenarios {
		switch {
		case s.Name == replay.AllComeAgain:
			out.Parts[0].About += fmt.Sprintf("; of those that come again %d pass later, and %d give up", s.Late, s.GaveUp)
		case s.Name == replay.AsLogged && s.Delayed > 0:
			out.Parts[0].About += fmt.Sprintf("; %d more wait in the queue", s.Delayed)
		}
	}
	before := "the log"
	if len(d.Against) > 0 {
		before = strings.Join(d.Against, " and ")
	}
	changes := report.Table{{"", ">REQUESTS", ">KEYS"}}
	changes.Add("newly refused", r.Newly.Requests, r.Newly.Keys)
	changes.Add("newly admitted", r.Lifted.Requests, r.Lifted.Keys)
	out.Parts = append(out.Parts, report.Part{Title: "Changes", About: "against " + before, Table: changes})
	if len(r.Chart.Slots) > 0 {
		out.Parts = append(out.Parts, report.Part{Title: "When", About: "requests, and those that are refused", Chart: d.chart()})
	}
	if len(r.Top) > 0 {
		keys := report.Table{{"KEY", ">REQUESTS", ">REFUSED", ">", ">BY THE LOG"}}
		for _, k := range r.Top {
			keys.Add(k.Key, k.Requests, k.Refused, part(int64(k.Refused), int64(k.Requests)), k.WasRefused)
		}
		out.Parts = append(out.Parts, report.Part{Title: "Keys", About: "refused most", Table: keys})
	}
	return out
}

func requestsLead(r *replay.Result) string {
	return fmt.Sprintf("%s of %s, from %s to %s UTC", many(r.Requests, "request"), many(r.Keys, "key"), r.From.Format(time.DateTime), r.To.Format(time.DateTime))
}

// chart has a row for each slot.
func (d *replayed) chart() (out report.Chart) {
	c := d.Result.Chart.Within(chartRows)
	out.Whole, out.Marked = "REQUESTS", "REFUSED"
	form := time.DateTime
	if d.Result.From.Format(time.DateOnly) == d.Result.To.Format(time.DateOnly) {
		form = time.TimeOnly
	}
	for i, s := range c.Slots {
		begin := time.Unix(0, (c.First+int64(i))*int64(c.Width)).UTC()
		out.Bars = append(out.Bars, report.Bar{Label: begin.Format(form), Whole: s.Requests, Marked: s.Refused})
	}
	return out
}
