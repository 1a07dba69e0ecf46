package pacing

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/outgoing/internal/answer"
)

// A limit of 10 in 10 seconds is told by an answer that comes at a time after 100 seconds.
func TestSpendTakesUnitsLeftByTheAnswer(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		name   string
		answer answer.Answer
		call   Call
		config Config
		known  Known
		// until is the end of the period, after the answer.
		until time.Duration
	}{
		{"a bucket, or a window", answer.Answer{HasRemaining: true, Remaining: 7, Reset: 5 * s}, Call{Units: 1}, Config{}, Known{7, 0, 0}, 12 * s},
		{"with calls on their way", answer.Answer{HasRemaining: true, Remaining: 7, Reset: 5 * s}, Call{Units: 1, Later: 2, Waiting: 3}, Config{}, Known{7, 2, 5}, 12 * s},
		{"used up", answer.Answer{HasRemaining: true, Reset: 5 * s}, Call{Units: 1}, Config{}, Known{0, 0, 0}, 5 * s},
		{"fewer left than the call's units", answer.Answer{HasRemaining: true, Remaining: 2, Reset: 5 * s}, Call{Units: 3}, Config{}, Known{2, 0, 0}, 5 * s},
		{"more left than the limit", answer.Answer{HasRemaining: true, Remaining: 70, Reset: 5 * s}, Call{Units: 1}, Config{}, Known{10, 0, 0}, 15 * s},
		{"a far reset", answer.Answer{HasRemaining: true, Remaining: 9, Reset: 50 * s}, Call{Units: 1}, Config{}, Known{9, 0, 0}, 20 * s},
		{"a late reset", answer.Answer{HasRemaining: true, ResetsLate: true, Remaining: 7, Reset: 11 * s}, Call{Units: 1, Later: 2}, Config{}, Known{7, 2, 2}, 13 * s},
		{"no reset", answer.Answer{HasRemaining: true, Remaining: 7}, Call{Units: 1}, Config{}, Known{7, 0, 0}, 10*s - 20*time.Millisecond},
		{"nothing told of the rest", answer.Answer{}, Call{Units: 2}, Config{}, Known{8, 0, 0}, 10*s - 20*time.Millisecond},
		{"a part is left to others", answer.Answer{HasRemaining: true, Reset: s}, Call{Units: 1}, Config{Reserve: 0.1}, Known{0, 0, 0}, 10*s - 20*time.Millisecond},
	} {
		c.answer.Limit, c.answer.Window = 10, 10*s
		const now = 100 * s
		c.call.Sent = now - 20*time.Millisecond
		p := (*Pace)(nil).Spend(&c.answer, Pace{Terms: answer.TermsOf(&c.answer)}, &c.call, now, &c.config)
		assert.True(t, p.Spends(), c.name)
		assert.Equal(t, c.call.Sent, p.Opened, c.name)
		assert.Equal(t, c.known, p.Limit.known, c.name)
		assert.Equal(t, c.until, p.Limit.ends()-now, c.name)
		assert.False(t, p.IsOver(p.Limit.ends()-1), c.name)
		assert.True(t, p.IsOver(p.Limit.ends()), c.name)
		assert.Nil(t, (*Pace)(nil).Spend(&c.answer, Pace{Terms: answer.Terms{Count: 10, Window: 1}}, &c.call, now, &c.config), "a unit takes a nanosecond or more")
		next := p.Open(now, 4)
		assert.Equal(t, Known{Left: 6, Begun: 10}, next.Limit.known, c.name)
		assert.Equal(t, now, next.Opened, c.name)
		c.answer.HasRemaining = false
		assert.Same(t, p, p.Spend(&c.answer, Pace{Terms: p.Terms}, &c.call, now, &c.config), "an answer that tells nothing new")
	}
}
