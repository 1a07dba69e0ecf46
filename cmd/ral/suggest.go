package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/ral-limiter/ral/cmd/ral/internal/replay"
	"github.com/ral-limiter/ral/cmd/ral/internal/report"
	"github.com/ral-limiter/ral/cmd/ral/internal/suggest"
	"github.com/ral-limiter/ral/policy"
)

type suggested struct {
	Source source         `json:"source"`
	Plans  []suggest.Plan `json:"plans"`
	Result *replay.Result `json:"result"`
	Notes  []string       `json:"notes"`
}

func runSuggest(ctx context.Context, args []string, stdin io.Reader, out, problems io.Writer) error {
	var (
		l      logs
		config = suggest.Config{MaxTime: "1m", Zone: "UTC"}
		bound  = condition{bound: 0.1, isPercent: true}
	)
	setBound := func(text string) error {
		number := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSpace(text), "s"), " key")
		if bound.UnmarshalText([]byte("refused keys > "+number)) != nil {
			return errors.New("want a number of keys or a percentage up to 100%, such as '20 keys' or '0.1%'")
		}
		return nil
	}
	flags := l.flags("suggest", problems)
	flags.Func("refuse-at-most", "how many `keys` may be refused, such as '20 keys' or '0.1%', the default", setBound)
	// setting adds a flag with a part of limits.
	setting := func(name, usage, format, want string, set func(text string)) {
		flags.Func(name, usage, func(text string) error {
			if _, err := policy.Parse(fmt.Sprintf(format, text)); err != nil {
				return fmt.Errorf("want %s: %w", want, err)
			}
			set(text)
			return nil
		})
	}
	setting("rate", "a `rate` of funnels and the like, such as 10/s; may be given again; default 1/s to 100/s",
		"funnel 1, %s", "a rate such as 10/s or 90/m", func(text string) { config.Rates = append(config.Rates, text) })
	setting("period", "the `period` of windows, such as 1h; may be given again; default a minute and an hour",
		"sliding 1/%s", "a period such as m, 1h or 30m", func(text string) { config.Periods = append(config.Periods, text) })
	setting("max-time", "the longest `time` of a request in flight; default 1m",
		"in flight 1, %s at most", "a time such as 30s or 1m", func(text string) { config.MaxTime = text })
	setting("zone", "the time `zone` of the windows of a day or month; default UTC",
		"window 1/day in %s", "a time zone such as UTC or Europe/Berlin", func(text string) { config.Zone = text })
	flags.StringVar(&l.log.Plan, "plan", "", "the `field` with a key's plan: each plan gets limits of its own")
	if err := l.parse(flags, args); err != nil {
		return err
	}
	if config.Rates == nil {
		config.Rates = []string{"1/s", "2/s", "5/s", "10/s", "20/s", "50/s", "100/s"}
	}
	if config.Periods == nil {
		config.Periods = []string{"m", "h"}
	}
	config.MaxRefused = func(keys int64) int64 {
		if bound.isPercent {
			// The multiplication of a percentage loses less than is added.
			return int64(bound.bound*float64(keys)/100 + 1e-6)
		}
		return int64(bound.bound)
	}
	suggester, err := suggest.New(config)
	if err != nil {
		return err
	}
	result, err := l.replay(ctx, replay.Config{Gauges: suggester.Gauges}, stdin, problems)
	if err != nil {
		return err
	}
	d := suggested{l.source, suggester.Result(result, l.source.HasDurations), result, append(notesOf("source", &l.source), notesOf("result", result)...)}
	if result.AreWhole {
		d.Notes = append(d.Notes, "The log has whole seconds, and each request runs at the beginning of its second. "+
			"With the true times a funnel needs at most a second's drain more or less, if each request costs a unit.")
	}
	d.Notes = append(d.Notes, fmt.Sprintf("The log has %v. Of longer windows it shows a part.", result.To.Sub(result.From).Round(time.Second)),
		"Of a bursty and of a warming up, only the rate follows from the log. A kind that is missing has no limit that refuses so few keys.")
	return l.write(out, d, d.report())
}

// report returns the tables and a chart for each plan.
func (d *suggested) report() *report.Report {
	out := &report.Report{Title: "Suggested limits", Lead: []string{d.Source.lead(), requestsLead(d.Result)}, Notes: d.Notes}
	for i := range d.Plans {
		plan := &d.Plans[i]
		title := "Limits"
		if plan.Plan != "" {
			title = "Plan " + plan.Plan
		}
		limits := report.Table{{"LIMIT", ">KEYS REFUSED", ">", ">BY THE NEXT LOWER"}}
		for _, suggestion := range plan.Limits {
			lower := fmt.Sprint(suggestion.Lower)
			if suggestion.Lower < 0 {
				lower = "none"
			}
			limits.Add(suggestion.Limit, suggestion.Refused, part(suggestion.Refused, plan.Keys), lower)
		}
		about := fmt.Sprintf("for %s, of which at most %d may be refused", many(plan.Keys, "key"), plan.MaxRefused)
		out.Parts = append(append(out.Parts, report.Part{Title: title, About: about, Table: limits}), curves(plan)...)
	}
	return out
}

// curves returns tables of the capacities of funnels by their rate, and a chart of the middle rate.
func curves(plan *suggest.Plan) []report.Part {
	quantiles, refused := report.Table{{">RATE"}}, report.Table{{">CAPACITY"}}
	for _, share := range suggest.Shares {
		quantiles[0] = append(quantiles[0], fmt.Sprintf(">%g%%", float64(share)/10))
	}
	for _, rate := range plan.Rates {
		row := []any{rate.Rate}
		for _, capacity := range rate.Quantiles {
			row = append(row, capacity)
		}
		quantiles.Add(row...)
		refused[0] = append(refused[0], ">"+rate.Rate)
	}
	middle := plan.Rates[len(plan.Rates)/2]
	chart := report.Chart{Whole: "KEYS", Marked: "REFUSED"}
	for i, capacity := range plan.Capacities {
		row := []any{capacity}
		for _, rate := range plan.Rates {
			row = append(row, rate.Refused[i])
		}
		refused.Add(row...)
		chart.Bars = append(chart.Bars, report.Bar{Label: fmt.Sprint(capacity), Whole: plan.Keys, Marked: middle.Refused[i]})
	}
	return []report.Part{
		{Title: "Capacity", About: "of a funnel, which suffices for so many of the keys, by its rate", Table: quantiles},
		{Title: "Keys refused", About: "by a funnel's capacity and rate", Table: refused},
		{Title: "Keys refused", About: "by a funnel's capacity at " + middle.Rate, Chart: chart},
	}
}
