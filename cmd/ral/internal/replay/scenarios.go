package replay

import (
	"time"

	"github.com/ral-limiter/ral/internal/core/decide"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/policy"
)

// Config says what is replayed.
type Config struct {
	// Limits all hold for each key: a request takes from every limit or from none.
	Limits []policy.Policy
	// Against are limits to compare with. Without them the log's own refusals are compared with.
	Against []policy.Policy
	// Statuses are those by which the log tells a refusal.
	Statuses []int
	// Gauges measure the capacity that each key needs.
	Gauges []policy.Policy
	// States are what keys owed before the log, for the limits with their texts.
	States []KeyState
	// HasCost says that requests have costs, so that a bound by single units does not hold.
	HasCost bool
	// Retries adds a scenario in which each refused request comes again when the limit allows it.
	Retries bool
	// MaxKeys bounds the keys that are known at once.
	MaxKeys int
	// Window is how long before its line a request may have begun.
	Window time.Duration
}

// scenariosFor returns the scenarios of a log that begins at zero. areWhole reports whether its stamps are whole
// seconds.
func scenariosFor(config Config, areWhole bool, zero time.Time) (all []*scenario) {
	add := func(name string, limits ...policy.Policy) *scenario {
		s := &scenario{index: len(all), needs: Needs{}, grants: map[int64]grant{}, totals: Scenario{Name: name}}
		for _, limit := range limits {
			s.totals.Bound = append(s.totals.Bound, Bound{Limit: limit.String()})
			s.limits = append(s.limits, decide.Anchor(limit, zero))
		}
		all = append(all, s)
		return s
	}
	add(AsLogged, config.Limits...)
	if len(config.Against) > 0 {
		add(ComparedWith, config.Against...)
	}
	if areWhole && len(config.Limits) > 0 {
		strict, lenient := bounds(config)
		if strict != nil {
			add(AtLeast, lenient)
			add(AtMost, strict)
		} else {
			add(SpreadEvenly, config.Limits...).isSpread = true
		}
	}
	if config.Retries {
		add(AllComeAgain, config.Limits...).retries = true
	}
	for _, limit := range config.Gauges {
		add(limit.String(), limit).isGauge = true
	}
	return all
}

// bounds returns two funnels for a log of whole seconds, or nil unless the limit is one funnel and each request
// costs a unit. For each key the strict funnel admits, at the stamps, at most as many requests as the limit did at the
// true arrivals. The lenient funnel admits at least as many.
//
// A funnel of capacity c and rate r admits as many requests as can be chosen with at most c + r*t within any time t. Two
// stamps are less than a second nearer or farther than their arrivals. So requests that are admissible at the arrivals
// are admissible at the stamps with capacity c + r, and those admissible at the stamps with c - r are so at the arrivals.
func bounds(c Config) (strict, lenient policy.Policy) {
	if len(c.Limits) != 1 || c.HasCost {
		return nil, nil
	}
	shaped, ok := c.Limits[0].(shape.Shaped)
	if !ok || shaped.Shape().Kind != shape.Funnel {
		return nil, nil
	}
	form := shaped.Shape()
	// A tick is a sixteenth of a nanosecond, as in Interval. drain is the ticks that drain in a second, rounded up.
	const ticks = 16
	drain := int64((ticks*uint64(time.Second) + form.Interval - 1) / form.Interval)
	lenient, err := policy.Funnel(form.Capacity+drain, form.Count, form.Per)
	if err != nil {
		return nil, nil
	}
	if form.Capacity > drain {
		strict, err = policy.Funnel(form.Capacity-drain, form.Count, form.Per)
	} else {
		// With less than a unit of capacity, requests are admissible at a distance d if k of them are at most c - r + r*(k-1)*d,
		// for each k of 2 or more. For 2 that is d = 1 s + (2 - c)/r, which suffices for more.
		more := time.Duration(form.Capacity-2) * time.Duration(form.Interval) / ticks
		strict, err = policy.Funnel(1, 1, time.Second-more+1)
	}
	if err != nil {
		return nil, nil
	}
	return strict, lenient
}
