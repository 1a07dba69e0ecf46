package pacing

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/outgoing/internal/answer"
)

var quota = answer.Quota{Limit: 20, Window: time.Second}

func TestHiddenLimitIsForgotten(t *testing.T) {
	for refused, served := range map[int64]int64{1: 20 * Forgiving, 80: 8000} {
		b := secondary{Quota: quota, refused: refused, served: served - 1}
		assert.False(t, b.Expires(), "after %d refusals", refused)
		b.Serve(1)
		assert.True(t, b.Expires(), "after %d refusals", refused)
	}
	assert.False(t, (&secondary{served: 10000}).Expires(), "no limit is known")
}

// Each refusal comes an hour after the line began, and holds the key for a second. The call was sent 10
// milliseconds before.
func TestTryOfHiddenLimit(t *testing.T) {
	const now, sent = time.Hour, time.Hour - 10*time.Millisecond
	rest := answer.Answer{RetryAfter: time.Second, HasRemaining: true, Remaining: 4000, Reset: time.Hour}
	with := func(change func(a *answer.Answer)) answer.Answer {
		a := rest
		change(&a)
		return a
	}
	for _, c := range []struct {
		name   string
		before secondary
		guess  guess
		answer answer.Answer
		tried  bool
		// want leaves out its trial and until.
		want secondary
	}{
		{"a first refusal", secondary{served: 7}, guess{since: now, served: 19, before: 5}, rest, true,
			secondary{Quota: answer.Quota{Limit: 24, Window: 1020 * time.Millisecond}, refused: 1}},
		{"of calls for longer than the hold", secondary{}, guess{since: now - time.Minute, served: 1200}, rest, true,
			secondary{Quota: answer.Quota{Limit: 1200, Window: 61020 * time.Millisecond}, refused: 1}},
		{"a refusal by a limit that is known", secondary{Quota: quota, refused: 80, served: 5000}, guess{since: now, served: 17, before: 1200}, rest, true,
			secondary{Quota: answer.Quota{Limit: 17, Window: 1020 * time.Millisecond}, refused: 81, served: 5000}},
		{"of the same refusal", secondary{Quota: quota, until: now}, guess{served: 17}, rest, true, secondary{Quota: quota}},
		{"without a time", secondary{}, guess{}, with(func(a *answer.Answer) { a.RetryAfter = 0 }), false, secondary{}},
		{"without units left", secondary{}, guess{}, with(func(a *answer.Answer) { a.Remaining = 0 }), false, secondary{}},
		{"without a told limit", secondary{}, guess{}, with(func(a *answer.Answer) { a.HasRemaining = false }), false, secondary{}},
	} {
		b := c.before
		assert.Equal(t, c.tried, b.Try(Unlimited, &c.guess, &c.answer, 1, sent, now, time.Second), c.name)
		b.trial, b.until = nil, 0
		assert.InDelta(t, c.want.Window, b.Window, 1, c.name)
		b.Window = c.want.Window
		assert.Equal(t, c.want, b, c.name)
	}
}

// The told limit has 2 units left for each second. A hidden limit of fewer is slower than even spacing.
func TestEndOfHiddenLimit(t *testing.T) {
	for units, kept := range map[int64]bool{0: false, 1: false, 2: true, 20: true} {
		b := secondary{Quota: answer.Quota{Limit: units, Window: time.Second}, trial: &trial{Unlimited, 4000, 2000 * time.Second}}
		spaced := b.End()
		assert.Equal(t, kept, spaced == nil, units)
		assert.Equal(t, kept, b.Limit == units && b.Window == time.Second, units)
		assert.Nil(t, b.End(), "a trial ended twice")
	}
}
