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

func TestWrappedPoliciesAnswerAlike(t *testing.T) {
	s := fault.Switch{Yield: 1}
	for _, p := range []policy.Policy{
		policy.Must(policy.Funnel(3, 1, time.Second)), policy.Must(policy.FixedWindow(3, time.Second)),
	} {
		w := s.Wrap(p)
		_, was := p.(policy.Choker)
		_, is := w.(policy.Choker)
		assert.Equal(t, was, is, "the fast path of %v", p)
		word, wrapped := uint64(0), uint64(0)
		for now := policy.Instant(1); now < 10e9; now += 123e6 {
			var want, got policy.Decision
			word, want = p.Take(word, now, 1, 0)
			wrapped, got = w.Take(wrapped, now, 1, 0)
			require.Equal(t, want, got)
			require.Equal(t, word, wrapped)
			require.Equal(t, p.FreshAt(word), w.FreshAt(wrapped))
		}
	}
}
