package engine

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/cell"
	"github.com/ral-limiter/ral/policy"
)

type nilPolicy struct{ policy.Policy }

// Promise: A bad field's error has its name, value and accepted values.
func TestBadConfigurationIsRefused(t *testing.T) {
	good := funnel(1, 1, time.Second)
	var missing *nilPolicy
	for _, c := range []struct {
		field, message string
		config         Config
	}{
		{"Policy", "ral: engine.Config: Policy is nil, want a policy, such as policy.Funnel returns", Config{}},
		{"Policy", "ral: engine.Config: Policy is nil, want a policy, such as policy.Funnel returns", Config{Policy: missing}},
		{"Idle", "ral: engine.Config: Idle is -1s, want a positive duration, or 0 for 5m", Config{Policy: good, Idle: -time.Second}},
		{"MaxKeys", "ral: engine.Config: MaxKeys is -1, want 1 or more, or 0 for 1048576", Config{Policy: good, MaxKeys: -1}},
		{"WhenFull", "ral: engine.Config: WhenFull is 3, want EvictLeastDebt, RefuseNew or AdmitNew", Config{Policy: good, WhenFull: 3}},
		{"Name", `ral: engine.Config: Name is "a\nb", want at most 64 bytes of printable ASCII`, Config{Policy: good, Name: "a\nb"}},
		{"Name", `ral: engine.Config: Name is "é", want at most 64 bytes of printable ASCII`, Config{Policy: good, Name: "é"}},
		{"Name", `ral: engine.Config: Name is "` + strings.Repeat("x", 65) + `", want at most 64 bytes of printable ASCII`, Config{Policy: good, Name: strings.Repeat("x", 65)}},
		{"OpenTimeout", "ral: engine.Config: OpenTimeout is -1ns, want a positive duration, or 0 for 10ms", Config{Policy: good, OpenTimeout: -1}},
		{"WhenUnavailable", "ral: engine.Config: WhenUnavailable is 2, want Admit or Refuse", Config{Policy: good, WhenUnavailable: 2}},
		{"QueueDepth", "ral: engine.Config: QueueDepth is -1, want 1 to 1048576, or 0 for 1024", Config{Policy: good, QueueDepth: -1}},
		{"QueueDepth", "ral: engine.Config: QueueDepth is 1048577, want 1 to 1048576, or 0 for 1024", Config{Policy: good, QueueDepth: 1<<20 + 1}},
		{"MaxWaiting", "ral: engine.Config: MaxWaiting is -1, want 1 or more, or 0 for 1024", Config{Policy: good, MaxWaiting: -1}},
		{"MaxWaitingTotal", "ral: engine.Config: MaxWaitingTotal is -1, want 1 or more, or 0 for 65536", Config{Policy: good, MaxWaitingTotal: -1}},
		{"Restarts", "ral: engine.Config: Restarts is -1, want 1 or more, or 0 for 20", Config{Policy: good, Restarts: -1}},
		{"RestartPeriod", "ral: engine.Config: RestartPeriod is -1ns, want a positive duration, or 0 for 10s", Config{Policy: good, RestartPeriod: -1}},
		{"Penalty.Refusals", "ral: engine.Config: Penalty.Refusals is 0, want 1 to 1024", Config{Policy: good, Penalty: Penalty{For: 1}}},
	} {
		e, err := New[string](c.config)
		require.Error(t, err, c.field)
		assert.Nil(t, e)
		var refused *policy.FieldError
		require.True(t, errors.As(err, &refused))
		assert.Equal(t, c.field, refused.Field)
		assert.Equal(t, c.message, err.Error())
	}
}

// Promise: A zero field takes its default.
func TestZeroTakesTheDefault(t *testing.T) {
	c := Config{}.withDefaults()
	assert.Equal(t, Config{
		Name: "ral", Idle: 5 * time.Minute, MaxKeys: 1 << 20, WhenFull: EvictLeastDebt, OpenTimeout: 10 * time.Millisecond,
		WhenUnavailable: Admit, QueueDepth: 1024, MaxWaiting: 1024, MaxWaitingTotal: 65536, Restarts: 20, RestartPeriod: 10 * time.Second,
	}, c)
	own := Config{
		Name: "api", Idle: 1, MaxKeys: 2, WhenFull: AdmitNew, OpenTimeout: 3, WhenUnavailable: Refuse,
		QueueDepth: 4, MaxWaiting: 5, MaxWaitingTotal: 8, Restarts: 6, RestartPeriod: 7,
	}
	assert.Equal(t, own, own.withDefaults(), "a value that is given must stay")
}

// The cell has its own constants for the same choices.
func TestCellHasTheSameChoices(t *testing.T) {
	assert.Equal(t, []cell.WhenFull{cell.EvictLeastDebt, cell.RefuseNew, cell.AdmitNew},
		[]cell.WhenFull{cell.WhenFull(EvictLeastDebt), cell.WhenFull(RefuseNew), cell.WhenFull(AdmitNew)})
}
