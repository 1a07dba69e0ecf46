package fault_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/test/torture/internal/fault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Callers that reach FreshAt in Reset never feel a fault.
func TestFaultsStrikeTheWriterOnce(t *testing.T) {
	for _, kind := range []fault.Kind{fault.None, fault.Panic, fault.Goexit, fault.Stall} {
		t.Run(kind.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := fault.Switch{Stall: time.Second}
				e, err := engine.New[int](engine.Config{Policy: s.Wrap(policy.Must(policy.Funnel(1, 1, time.Hour)))})
				require.NoError(t, err)
				defer e.Close()
				require.True(t, e.Choke(1))
				synctest.Wait()

				s.Arm(kind)
				require.True(t, e.Reset(1))
				assert.Zero(t, s.Fired(), "a caller was struck")
				require.True(t, e.Choke(2))
				time.Sleep(time.Minute)
				restarts, fired := uint64(1), int64(1)
				switch kind {
				case fault.None:
					restarts, fired = 0, 0
				case fault.Stall:
					restarts = 0
				}
				assert.Equal(t, fired, s.Fired())
				assert.Equal(t, restarts, e.Stats().Restarts)
				assert.True(t, e.Choke(1))
				assert.False(t, e.Choke(1))
				assert.False(t, e.Choke(2))
			})
		})
	}
}
