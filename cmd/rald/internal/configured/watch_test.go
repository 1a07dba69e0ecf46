package configured

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/cmd/rald/internal/redistest"
	"github.com/ral-limiter/ral/fleet"
	"github.com/ral-limiter/ral/limits"
)

// tries returns what the limit api has let pass in shadow, and the figures of its candidate.
func (o *opened) tries() (passed uint64, tried limits.TrialStats) {
	call := o.Begin()
	defer call.End()
	u, ok := call.Find([]byte("api"), nil)
	require.True(o.t, ok)
	n, trial := u.Counts()
	require.NotNil(o.t, n)
	if trial != nil {
		tried = trial.Stats()
	}
	return n.Passed.Load(), tried
}

// call takes a unit of the limit api by its Use.
func (o *opened) call(key string) bool {
	o.t.Helper()
	call := o.Begin()
	defer call.End()
	u, ok := call.Find([]byte("api"), []byte(key))
	require.True(o.t, ok)
	d, err := u.Take(context.Background(), 1)
	require.NoError(o.t, err)
	return d.Allowed
}

// A candidate of another kind begins anew, and one with other figures goes on with its counts and keys.
//
// Promise: rald tries the `candidate` of a limit on its calls, without effect, also while the limit changes.
func TestCandidateIsTried(t *testing.T) {
	o := open(t, t.TempDir())
	o.set("{limit: window 10/365d, candidate: window 3/365d}")
	for range 5 {
		require.True(t, o.call("k"))
	}
	_, tried := o.tries()
	assert.Equal(t, limits.TrialStats{Admitted: 3, WouldRefuse: 2}, tried)
	o.set("{limit: window 6/365d, candidate: window 3/365d}")
	require.True(t, o.call("k"))
	require.False(t, o.call("k"), "what was used counts on")
	_, tried = o.tries()
	assert.Equal(t, limits.TrialStats{Admitted: 3, WouldRefuse: 3, Refused: 1}, tried)
	assert.EqualValues(t, 0, o.remaining("k"))

	o.set("{limit: window 6/365d, candidate: window 4/365d}")
	require.False(t, o.call("k"))
	_, tried = o.tries()
	assert.Equal(t, limits.TrialStats{WouldAdmit: 1}, tried, "the fourth unit of the candidate")
	o.set("{limit: window 6/365d, candidate: 'funnel 2, 2/365d'}")
	require.True(t, o.call("other"))
	_, tried = o.tries()
	assert.Equal(t, limits.TrialStats{Admitted: 1}, tried)
	o.set("window 6/365d")
	require.True(t, o.call("other"))

	call := o.Begin()
	defer call.End()
	_, ok := call.Find([]byte("[candidate] api"), []byte("k"))
	assert.False(t, ok, "it is no client's to call")
}

// Units that come back or are charged do so under the candidate as well.
func TestCandidateIsRefunded(t *testing.T) {
	o := open(t, "")
	o.set("{limit: window 10/365d, candidate: window 3/365d}")
	call := o.Begin()
	u, ok := call.Find([]byte("api"), []byte("k"))
	require.True(t, ok)
	for range 3 {
		_, err := u.Take(t.Context(), 1)
		require.NoError(t, err)
	}
	_, err := u.Refund(t.Context(), 2)
	require.NoError(t, err)
	g, err := u.Limiter().Hold(t.Context(), limits.Call[string]{Key: u.Key, N: 2, Limit: u.Limit, NoWait: true})
	require.NoError(t, err)
	require.NoError(t, g.Settle(t.Context(), 0))
	_, err = u.Take(t.Context(), 2)
	require.NoError(t, err)
	call.End()
	_, tried := o.tries()
	assert.Equal(t, limits.TrialStats{Admitted: 5}, tried)
}

// Promise: A limit in `shadow` refuses and delays no call of rald, and counts those that it would have.
func TestShadowRefusesNoCall(t *testing.T) {
	o := open(t, "")
	o.set("{limit: 'queue 2, 1/s', shadow: yes}")
	for range 4 {
		require.True(t, o.call("k"))
	}
	a, err := o.Admit(t.Context(), Prefix("api")+"k", 1)
	require.NoError(t, err)
	assert.True(t, a.Allowed)
	assert.Zero(t, a.Wait)
	passed, _ := o.tries()
	assert.EqualValues(t, 4, passed, "the first had no wait")
	assert.False(t, o.take("k", 0).Allowed && o.take("k", 0).Remaining > 0, "a look says what is left")
	explains := func(want bool) {
		o.use(t, "k", func(u Use) {
			x, err := u.Explain(t.Context())
			require.NoError(t, err)
			assert.Equal(t, want, x.Shadow)
		})
	}
	explains(true)
	o.set("queue 2, 1/s")
	explains(false)
	assert.False(t, o.call("k"))
}

// The third refusal blocks. A block's refusals do not count, and the next block is twice as long.
//
// Promise: rald blocks a key by the `penalty` of its limit, and no key under another limit.
func TestPenaltyBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, "")
		require.NoError(t, o.Set(t.Context(), warnFile(t, "limits:\n  api: {limit: 'funnel 1, 1/s', penalty: '3 in 1m, block 10m, at most 1h'}\n  other: funnel 1, 1/s\n"), nil))
		defer func() { require.NoError(t, o.Limits.Close()) }()
		blocked := func(key string) time.Duration {
			call := o.Begin()
			defer call.End()
			u, _ := call.Find([]byte("api"), []byte(key))
			d, err := u.Family.Blocked(t.Context(), u.Key)
			require.NoError(t, err)
			return d
		}
		for _, length := range []time.Duration{10 * time.Minute, 20 * time.Minute} {
			require.True(t, o.call("k"))
			for range 2 {
				require.False(t, o.call("k"))
				require.Zero(t, blocked("k"))
			}
			for range 3 {
				require.False(t, o.call("k"))
				require.Equal(t, length, blocked("k"))
			}
			require.True(t, o.call("another"))
			time.Sleep(length)
		}
		// RAL.RESET forgets the blocks in a row.
		require.True(t, o.call("k"))
		call := o.Begin()
		u, _ := call.Find([]byte("api"), []byte("k"))
		_, err := u.Reset(t.Context())
		require.NoError(t, err)
		call.End()
		require.True(t, o.call("k"))
		for range 3 {
			require.False(t, o.call("k"))
		}
		require.Equal(t, 10*time.Minute, blocked("k"))
	})
}

// Promise: With `-redis` a block by a `penalty` holds on all servers.
func TestPenaltyBlocksInRedis(t *testing.T) {
	of, _ := redistest.Open(t, fleet.FallbackShare)
	o, other := openIn(t, of, ""), openIn(t, of, "")
	for _, one := range []*opened{o, other} {
		one.set("{limit: window 1/300d, penalty: '2 in 1m, block 10m', candidate: window 9/300d, shadow: yes}")
		defer func() { require.NoError(t, one.Limits.Close()) }()
	}
	for range 3 {
		require.True(t, o.call("k"))
	}
	call := other.Begin()
	defer call.End()
	u, _ := call.Find([]byte("api"), []byte("k"))
	d, err := u.Family.Blocked(t.Context(), u.Key)
	require.NoError(t, err)
	assert.Positive(t, d)
	_, tried := o.tries()
	assert.Equal(t, limits.TrialStats{Admitted: 1, WouldAdmit: 2}, tried)
}
