// Package slidinglog is the exact log of timestamps, a limit of fleet mode alone. The log stands
// apart because package fleet offers it and package store keeps it.
package slidinglog

import (
	"fmt"
	"strings"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// Most is the highest limit: a log of single units takes memory for each.
const Most = 10_000

// atMost has the methods of policy.AtMost's result that a log needs. Embedding them, rather than a
// policy.Policy, keeps these methods of the log.
type atMost interface {
	policy.Policy
	policy.Refunder
	policy.Relative
	policy.Windowed
}

// Log is the limit. Words have no room for a log, so as a policy of words it is the policy.AtMost
// of the same figures, which admits no more.
type Log struct {
	atMost
	Per time.Duration
}

// New returns the log of limit units per period, or a *policy.FieldError.
func New(limit int64, per time.Duration) (*Log, error) {
	if limit > Most {
		return nil, &policy.FieldError{Of: "SlidingLog", Field: "limit", Value: limit, Want: fmt.Sprintf(
			"at most %d: Redis may keep an entry for each unit; policy.SlidingWindow counts higher", Most)}
	}
	p, err := policy.AtMost(limit, per)
	if err != nil {
		if field, ok := err.(*policy.FieldError); ok { //nolint:errorlint // made by AtMost itself
			return nil, &policy.FieldError{Of: "SlidingLog", Field: field.Field, Value: field.Value, Want: field.Want}
		}
		return nil, err
	}
	return &Log{atMost: p.(atMost), Per: per}, nil
}

// Reads implements policy.Relative.
func (l *Log) Reads(other policy.Policy) bool { return l.atMost.Reads(words(other)) }

// Carry implements policy.Relative.
func (l *Log) Carry(from policy.Policy, word uint64, now policy.Instant) (uint64, bool) {
	return l.atMost.Carry(words(from), word, now)
}

func words(limit policy.Policy) policy.Policy {
	if log, ok := limit.(*Log); ok {
		return log.atMost
	}
	return limit
}

// String describes the limit for people.
func (l *Log) String() string {
	_, per, _ := strings.Cut(l.atMost.String(), "/")
	return fmt.Sprintf("log of at most %d in any %s", l.Limit(), per)
}
