package plan

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/policy"
)

// The sum has the earlier end, and the rest of the hold that was sent earlier, in either order.
func TestSumOfHoldsHasTheEarlierEnd(t *testing.T) {
	begun := time.Now()
	holdOf := func(sent, end time.Duration, units int64) Hold {
		return Hold{Units: units, Sent: begun.Add(sent), End: begun.Add(end), Window: 7, Word: uint64(units), Instant: 10}
	}
	for _, c := range []struct{ old, young, want Hold }{
		{holdOf(0, 5, 3), holdOf(1, 6, 4), Hold{Units: 7, Sent: begun, End: begun.Add(5), Window: 7, Word: 3, Instant: 10}},
		{holdOf(0, 6, 3), holdOf(1, 5, 4), Hold{Units: 7, Sent: begun, End: begun.Add(5), Window: 7, Word: 3, Instant: 10}},
		{holdOf(0, 5, 3), holdOf(1, 5, 0), Hold{Units: 3, Sent: begun, End: begun.Add(5), Window: 7, Word: 3, Instant: 10}},
	} {
		assert.Equal(t, c.want, c.old.with(c.young))
		assert.Equal(t, c.want, c.young.with(c.old))
	}
	same := holdOf(0, 5, 3)
	assert.EqualValues(t, 6, same.with(same).Units)
}

const ms = time.Millisecond

// perSecond is a window of 1,000 units a second: 250 ms are a term.
var perSecond = must.Get(New(policy.Must(policy.FixedWindow(1000, time.Second)), 0))

// An ask is sized by the pace since the ask before: at most twice the use, what the bank has left for
// this server, and what leases were of use so far.
func TestAskFollowsTheUse(t *testing.T) {
	for name, c := range map[string]struct {
		// used is the units used since the first ask.
		used int64
		// span is the time since then.
		span time.Duration
		// left is what the first grant says is left.
		left int64
		// bank is what the bank has left.
		bank    int64
		servers int
		want    int64
	}{
		"a key's first ask may be its only ask":     {servers: 1, bank: 1000},
		"the units of a quarter of a term, and 1/4": {used: 100, span: 100 * ms, bank: 1000, servers: 1, want: 79},
		"at most twice the use":                     {used: 3, span: ms, bank: 1000, servers: 1, want: 6},
		"less than are there":                       {used: 100, span: 100 * ms, left: 30, bank: 1000, servers: 1, want: 49},
		"at most half of the bank's rest":           {used: 100, span: 100 * ms, bank: 100, servers: 1, want: 50},
		"which all servers share":                   {used: 100, span: 100 * ms, bank: 100, servers: 5, want: 10},
	} {
		start := time.Unix(1, 0)
		a := NewAccount(start)
		a.Size(perSecond, start, 0, 0, 1, 0)
		if c.span == 0 {
			a = NewAccount(start)
		}
		now := start.Add(c.span)
		grant := store.LeaseReply{Granted: c.used + c.left}
		grant.Decision = policy.Decision{Remaining: c.bank, ResetAfter: time.Second}
		a.Granted(perSecond, grant, start, perSecond.Term)
		a.Learn(perSecond, grant, now)
		assert.Equal(t, c.want, a.Size(perSecond, now, c.left, 0, c.servers, 0), name)
	}
	var a Account
	assert.EqualValues(t, 1, a.Afford(0), "nothing was saved yet")
	for range 10 {
		a.CountAnswered()
	}
	assert.EqualValues(t, 2*(10-1-1), a.Afford(0), "10 calls, and two asks")
}

// Eight calls a term are worth a lease, and fewer after a refusal.
func TestKeyIsWorthwhileFromEightCallsATerm(t *testing.T) {
	start := time.Unix(1, 0)
	a := NewAccount(start)
	for i := range worthwhile {
		assert.Equal(t, i == worthwhile-1, a.Worthwhile(1, 0, start, time.Second), "call %d", i+1)
	}
	a.Current.Units = 20
	assert.True(t, a.Worthwhile(1, 4, start.Add(2*time.Second), time.Second), "the word answered 16 calls since")
	assert.False(t, a.Worthwhile(1, 4, start.Add(9*time.Second), time.Second))
	a.Refuse(1, time.Second, time.Second, 0, start.Add(9*time.Second))
	assert.True(t, a.Worthwhile(1, 4, start.Add(20*time.Second), time.Second), "a remembered refusal answers calls")
}

// A refusal holds as long as the bank says, between the pause and a bound that doubles.
func TestRefusalsHoldLonger(t *testing.T) {
	start := time.Unix(1, 0)
	a := NewAccount(start)
	for i, want := range []time.Duration{100 * ms, 200 * ms, 400 * ms, 800 * ms, 1600 * ms, 1600 * ms} {
		assert.Equal(t, want, a.Refuse(5, time.Hour, 100*ms, ms, start), i)
	}
	assert.Equal(t, 70*ms, a.Refuse(5, 70*ms, 100*ms, ms, start), "as the bank says")
	assert.Equal(t, ms, a.Refuse(5, 0, 100*ms, ms, start), "at least a pause")
	for n, want := range map[int64]bool{4: false, 5: true, math.MaxInt64: true} {
		until, refused := a.Refused(n, start)
		assert.Equal(t, want, refused, n)
		assert.Equal(t, start.Add(ms), until)
	}
	_, refused := a.Refused(5, start.Add(ms))
	assert.False(t, refused)
	assert.True(t, a.RefusedLately(start.Add(100*ms), 100*ms))
	assert.False(t, a.RefusedLately(start.Add(101*ms), 100*ms))
	a.Granted(perSecond, store.LeaseReply{Granted: 1}, start, ms)
	assert.Equal(t, 100*ms, a.Refuse(5, time.Hour, 100*ms, ms, start), "a grant in between")
}

// Units of another lease wait until the key's word has none. Units of one window are added.
func TestUnitsOfAnotherLeaseFollow(t *testing.T) {
	now := time.Unix(1, 0)
	hold := func(window policy.Instant) Hold {
		return Hold{Units: 5, Sent: now, End: now.Add(time.Second), Window: window}
	}
	for _, c := range []struct {
		current, granted policy.Instant
		left             int64
		waits            bool
	}{{0, 0, 0, false}, {0, 0, 1, true}, {7, 7, 1, false}, {7, 8, 1, true}, {7, 8, 0, false}} {
		a := Account{Current: hold(c.current)}
		assert.Equal(t, c.waits, a.Queue(hold(c.granted), c.left, now), c)
		assert.Equal(t, c.waits, a.Next.Live(now), c)
		if c.waits {
			assert.True(t, a.Queue(hold(c.granted), c.left, now))
			assert.EqualValues(t, 10, a.Next.Units)
		}
	}
}

// A return costs two commands, which leases must have saved.
func TestReturnsAreEarned(t *testing.T) {
	var a Account
	a.CountAnswered()
	assert.False(t, a.Earned())
	a.CountAnswered()
	assert.True(t, a.Earned())
	assert.False(t, a.Earned(), "it was spent")
}
