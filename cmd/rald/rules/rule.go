package rules

import (
	"fmt"
	"strings"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// Unit is the time in which a rule counts. The zero value is none.
type Unit int

// The units of a rule. They are of constant length, and begin at its multiples in Unix time.
const (
	Second Unit = iota + 1
	Minute
	Hour
	Day
	Week
	Month // 30 days
	Year  // 365 days
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

// String returns the name of the unit in capitals, as Envoy's protocol has it.
func (u Unit) String() string {
	if !u.IsKnown() {
		u = 0
	}
	return units[u].name
}

// IsKnown reports whether it is one of Units.
func (u Unit) IsKnown() bool { return u >= Second && u <= Year }

// Length returns the length of the unit's windows. That of no unit is 0.
func (u Unit) Length() time.Duration {
	if !u.IsKnown() {
		return 0
	}
	return units[u].length
}

// parseUnit returns the unit of that name, in letters of any case, or 0.
func parseUnit(name string) Unit {
	name = strings.ToUpper(name)
	for _, u := range Units {
		if units[u].name == name {
			return u
		}
	}
	return 0
}

// Rule is what a request is held to if its descriptor matches. It never changes.
type Rule struct {
	// Path is the domain and the keys that lead to the rule, joined by dots. It names the rule
	// for people. Two rules may have the same.
	Path string
	File string
	Line int // 0 if it is not known

	// Unlimited rules hold nothing back. They have neither Requests nor Limit.
	Unlimited bool
	// Requests is the most hits in each Unit, from 0 on.
	Requests uint32
	Unit     Unit
	// Limit holds in place of Requests and Unit if it is not nil.
	Limit policy.Policy
	// Candidate is counted beside the limit if it is not nil.
	Candidate policy.Policy

	// Name is the name by which the rules of other descriptors of a request replace this one.
	Name     string
	Replaces []string

	// Shadow rules report a refusal as OK.
	Shadow bool
	// Quota rules refuse no request, and report no time until they reset.
	Quota bool
}

// dump describes the rule in the words of the reference.
func (r *Rule) dump() string {
	limit := fmt.Sprintf("unit=%s requests_per_unit=%d", r.Unit, r.Requests)
	if r.Limit != nil {
		limit = "limit=" + r.Limit.String()
	}
	text := fmt.Sprintf("%s: %s, shadow_mode: %t, quota_mode: %t", r.Path, limit, r.Shadow, r.Quota)
	if r.Candidate != nil {
		text += ", candidate: " + r.Candidate.String()
	}
	return text
}
