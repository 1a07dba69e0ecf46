package admission

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/internal/testkit/race"
	"github.com/ral-limiter/ral/policy"
)

// named is a policy with a name that may be comparable or not.
type named struct {
	policy.Policy
	name any
}

func (n named) String() string {
	if text, ok := n.name.(string); ok {
		return text
	}
	return "no name"
}

func TestWordsFollowThePolicy(t *testing.T) {
	var w words
	window := policy.Must(policy.FixedWindow(3, time.Hour))
	for range 2 {
		assert.Empty(t, w.of(nil))
		assert.Equal(t, "window 3/h", w.of(window))
		assert.Equal(t, "window 3/h", w.of(window))
		assert.Equal(t, "window 4/h", w.of(policy.Must(policy.FixedWindow(4, time.Hour))))
		assert.Equal(t, "a", w.of(named{window, "a"}))
		assert.Equal(t, "b", w.of(named{window, "b"}))
		assert.Equal(t, "no name", w.of(named{window, []int{1}}), "one that cannot be compared")
		assert.Equal(t, "no name", w.of(named{window, []int{1}}))
	}
}

func TestWordsAreRemembered(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	var w words
	window := policy.Must(policy.FixedWindow(3, time.Hour))
	assert.Zero(t, testing.AllocsPerRun(100, func() { w.of(window) }))
}
