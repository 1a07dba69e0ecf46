// Package suggest finds limits of each kind that would have refused few keys of a log.
//
// Start reading at [Suggester.Result]. family.go has the kinds of limits. Package replay measures what each key needs.
package suggest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ral-limiter/ral/cmd/ral/internal/replay"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/policy"
)

// Config says which limits are considered, in the notation of policy.Parse.
type Config struct {
	// Funnels, queues and other limits that drain are tried at each of Rates, and windows at each of Periods.
	Rates, Periods []string
	// MaxTime is the longest time of a unit in flight.
	MaxTime string
	// Zone is the time zone of a calendar's windows.
	Zone string
	// MaxRefused returns how many of all keys may be refused.
	MaxRefused func(keys int64) int64
}

// Suggester turns the needs of keys into limits. Call [New].
type Suggester struct {
	// Gauges are the limits for replay.Config.
	Gauges   []policy.Policy
	families []*family
	rates    []rate
	config   Config
}

type rate struct {
	text     string
	interval uint64 // from a unit to the next
	second   int64  // the units of a second, at least 1
}

// New returns a Suggester. The error is as of policy.Parse.
func New(config Config) (*Suggester, error) {
	suggester := &Suggester{config: config}
	for _, text := range config.Rates {
		limit, err := policy.Parse("funnel 1, " + text)
		if err != nil {
			return nil, err
		}
		form := limit.(shape.Shaped).Shape()
		suggester.rates = append(suggester.rates, rate{text, form.Interval, max(form.Count*int64(time.Second)/int64(form.Per), 1)})
	}
	slices.SortFunc(suggester.rates, func(a, b rate) int { return cmp.Compare(b.interval, a.interval) })
	return suggester, suggester.measure()
}

// measure sets the families of the settings, first the funnels, and the gauges.
func (s *Suggester) measure() (err error) {
	add := func(format, setting string) {
		f := &family{text: func(n int64) string { return fmt.Sprintf(format, n, setting) }}
		err = errors.Join(err, f.divide(&s.Gauges))
		s.families = append(s.families, f)
	}
	for _, rate := range s.rates {
		add("funnel %d, %s", rate.text)
	}
	for i, rate := range s.rates {
		// A queue admits as a funnel of one unit more does, whose words are the same.
		s.families = append(s.families, &family{text: func(n int64) string { return fmt.Sprintf("queue %d, %s", n-1, rate.text) }, ranges: s.families[i].ranges})
	}
	// A log tells neither how long a key takes to be warm nor how much more it costs when it is cold.
	for _, text := range []func(i int64) string{
		func(i int64) string { return fmt.Sprintf("bursty %s, %d", s.rates[i].text, s.rates[i].second) },
		func(i int64) string { return fmt.Sprintf("warming up %s over 10s, cold 3", s.rates[i].text) },
	} {
		f := &family{isByRate: true, text: text}
		for i := range int64(len(s.rates)) {
			if limit, err := policy.Parse(text(i)); err == nil { // the kind may not have the rate
				f.add(i, i, limit, &s.Gauges)
			}
		}
		s.families = append(s.families, f)
	}
	for _, format := range []string{"window %d/%s", "window %d/%s aligned", "sliding %d/%s", "at most %d/%s"} {
		for _, period := range s.config.Periods {
			add(format, period)
		}
	}
	add("window %d/day in %s", s.config.Zone)
	add("window %d/month in %s", s.config.Zone)
	add("in flight %d, %s at most", s.config.MaxTime)
	return err
}

// Plan is the suggestions for the keys of a plan.
type Plan struct {
	Plan       string       `json:"plan,omitempty"`
	Keys       int64        `json:"keys"`
	MaxRefused int64        `json:"max_refused_keys"`
	Limits     []Suggestion `json:"limits"`
	// Capacities are the capacities for which Curve.Refused has a count.
	Capacities []int64 `json:"capacities"`
	Rates      []Curve `json:"rates"`
}

// Suggestion is the lowest limit of its kind that refuses few enough keys.
type Suggestion struct {
	// Limit is read by policy.Parse.
	Limit string `json:"limit"`
	// Refused counts the keys that the limit refuses, and Lower those that the next lower limit refuses, whose
	// capacity is a unit less or, without a capacity, whose rate is the next lower rate. Lower is -1 if there is none.
	Refused int64 `json:"refused_keys"`
	Lower   int64 `json:"refused_keys_by_next_lower"`
}

// Curve is what keys need of funnels of a rate.
type Curve struct {
	Rate string `json:"rate"`
	// Quantiles are the capacities that suffice for each of Shares of the keys. A capacity beyond every funnel is
	// replay.Beyond.
	Quantiles []int64 `json:"quantiles"`
	// Refused counts the keys that each of Plan.Capacities refuses.
	Refused []int64 `json:"refused_keys"`
}

// Shares are the shares of keys for which Curve.Quantiles has a capacity, in thousandths.
var Shares = [...]int64{500, 900, 990, 999, 1000}

// Result returns the suggestions for each plan. hasDurations reports whether the log tells requests in flight.
func (s *Suggester) Result(result *replay.Result, hasDurations bool) (plans []Plan) {
	for i, name := range result.Plans {
		plan := Plan{Plan: name, Keys: result.Needs[0].RefusedBy(i, -1)}
		plan.MaxRefused = s.config.MaxRefused(plan.Keys)
		for _, family := range s.families {
			n, ok := family.lowest(plan.MaxRefused, result.Needs, i)
			if !ok {
				continue
			}
			if limit := family.text(n); hasDurations || !strings.HasPrefix(limit, "in flight") {
				plan.Limits = append(plan.Limits, Suggestion{limit, family.refusedBy(n, result.Needs, i), family.refusedBy(n-1, result.Needs, i)})
			}
		}
		s.curve(&plan, result.Needs, i)
		plans = append(plans, plan)
	}
	return plans
}

// curve sets the plan's rates, with capacities that double until none refuses a key.
func (s *Suggester) curve(p *Plan, needs []replay.Needs, plan int) {
	for i, rate := range s.rates {
		curve := Curve{Rate: rate.text}
		for _, share := range Shares {
			curve.Quantiles = append(curve.Quantiles, max(needs[i].Capacity(plan, p.Keys*(1000-share)/1000), 1))
		}
		p.Rates = append(p.Rates, curve)
	}
	for capacity, isLast := int64(1), false; !isLast && capacity < maxNeed; capacity *= 2 {
		p.Capacities, isLast = append(p.Capacities, capacity), true
		for i := range p.Rates {
			refused := needs[i].RefusedBy(plan, capacity)
			p.Rates[i].Refused, isLast = append(p.Rates[i].Refused, refused), isLast && refused == 0
		}
	}
}
