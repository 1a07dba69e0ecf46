package rules

import (
	"fmt"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// Unit is the time in which a rule counts. The zero value is none.
type Unit int

// Units of rules have a constant length, and begin at its multiples in Unix time.
const (
	Second Unit = iota + 1
	Minute
	Hour
	Day
	Week
	// A Month is 30 days.
	Month
	// A Year is 365 days.
	Year
)

const day = 24 * time.Hour

var units = [...]struct {
	name   string
	length time.Duration
}{
	{"UNKNOWN", 0},
	Second: {"SECOND", time.Second},
	Minute: {"MINUTE", time.Minute},
	Hour:   {"HOUR", time.Hour},
	Day:    {"DAY", day},
	Week:   {"WEEK", 7 * day},
	Month:  {"MONTH", 30 * day},
	Year:   {"YEAR", 365 * day},
}

// Units are all units.
var Units = []Unit{Second, Minute, Hour, Day, Week, Month, Year}

// String returns the name of the unit in capitals, as in Envoy's protocol.
func (u Unit) String() string {
	if u < Second || u > Year {
		u = 0
	}
	return units[u].name
}

// Length returns the length of the unit's windows, 0 for no unit.
func (u Unit) Length() time.Duration { return units[u].length }

// ParseUnit returns the unit of a name in capitals, 0 for any other name.
func ParseUnit(name string) Unit {
	for _, unit := range Units {
		if units[unit].name == name {
			return unit
		}
	}
	return 0
}

// Rule limits requests with a matching descriptor. It never changes.
type Rule struct {
	// Path names the rule for people: the domain and its keys, joined by dots. It may not be
	// unique.
	Path string
	File string
	// Line is 0 if it is unknown.
	Line int

	// Unlimited rules admit all. They have neither Requests nor Limit.
	Unlimited bool
	// Requests bounds the hits in each Unit, from 0 on.
	Requests uint32
	Unit     Unit
	// Limit, if not nil, replaces Requests and Unit.
	Limit policy.Policy
	// More are limits beside Limit: hits are taken from all or from none.
	More []policy.Policy
	// Candidate, if not nil, is counted beside the limit.
	Candidate policy.Policy

	// Rules of a request's other descriptors replace this rule by its Name.
	Name     string
	Replaces []string

	// Shadow rules report a refusal as OK.
	Shadow bool
	// Quota rules refuse a request only if all Quota rules of its descriptors do.
	Quota bool
	// Metadata is in the response to a request that passed the rule. Its values are nil, or of the
	// types bool, float64, string, []any and map[string]any.
	Metadata map[string]any
}

func (r *Rule) dump() string {
	limit := fmt.Sprintf("unit=%s requests_per_unit=%d", r.Unit, r.Requests)
	if r.Limit != nil {
		limit = "limit=" + r.Limit.String()
		for _, more := range r.More {
			limit += " and " + more.String()
		}
	}
	text := fmt.Sprintf("%s: %s, shadow_mode: %t, quota_mode: %t", r.Path, limit, r.Shadow, r.Quota)
	if r.Candidate != nil {
		text += ", candidate: " + r.Candidate.String()
	}
	return text
}
