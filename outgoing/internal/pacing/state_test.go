package pacing

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/outgoing/internal/answer"
	"github.com/ral-limiter/ral/policy"
)

var testConfig = Config{Learns: true, Spends: true, Probe: 5 * time.Second, Backoff: time.Second, MaxBackoff: time.Hour}

// began is the time of the tests' answers, since the line began.
const began = time.Minute

// window is a told limit of 100 in 10 seconds, with 40 left for 5 seconds.
var window = answer.Answer{Limit: 100, Window: 10 * time.Second, HasRemaining: true, Remaining: 40, Reset: 5 * time.Second}

func spaced() *Pace { return Pace{Terms: answer.TermsOf(&window)}.Spaced(true) }

func guessed(rate float64) *Pace { return (&guess{rate: rate}).Pace(time.Hour) }

// turn describes a change: how calls are sent, and when the next may be.
type turn struct {
	// limit is the limit of the pace, empty for the probe.
	limit  string
	spends bool
	hold   time.Duration
	// left is below 0 if the units stay.
	left    int64
	restart bool
	// fails is how long calls fail.
	fails time.Duration
}

func turnOf(c Change, now time.Duration) turn {
	t := turn{spends: c.Pace.Spends(), hold: c.Hold, left: -1, restart: c.Restart, fails: max(c.FailsUntil-now, 0)}
	if c.Pace != nil {
		t.limit = c.Pace.Limit.String()
	}
	if c.Lowers {
		t.left = c.Left
	}
	return t
}

const (
	probed    = "funnel 1, 1/10ms"
	unlimited = "funnel 1073741824, 1000000000/s"
	// evenly is the told limit, spaced.
	evenly = "funnel 3, 100/10416666667ns"
	// slower is evenly, slower by one step.
	slower = "funnel 1, 100/11458333334ns"
	in10s  = "window 100/10s"
)

// Each answer is to the second call of a key. It was sent 20 milliseconds ago, and no other is under way.
func TestAnsweredByStateAndAnswer(t *testing.T) {
	const s = time.Second
	refusal := answer.Answer{Refused: true}
	after := func(d time.Duration) answer.Answer { return answer.Answer{Refused: true, RetryAfter: d} }
	change := func(a answer.Answer, by func(a *answer.Answer)) answer.Answer {
		by(&a)
		return a
	}
	overlongUntil := func(until time.Duration) State {
		return State{Pace: Unlimited, overlong: overlong{until: until, probe: 2 * time.Hour, pause: time.Hour}}
	}
	spending := func() *Pace {
		return (*Pace)(nil).Spend(&window, Pace{Terms: answer.TermsOf(&window)}, &Call{Sent: began - s, Units: 1}, began-s/2, &testConfig)
	}
	for _, c := range []struct {
		name   string
		state  State
		call   func(call *Call)
		config func(config *Config)
		answer answer.Answer
		want   turn
	}{
		{"the probe, without a limit", State{}, nil, nil, answer.Answer{}, turn{unlimited, false, 0, -1, false, 0}},
		{"the probe, in a back-off", State{}, func(c *Call) { c.Holding = true }, nil, answer.Answer{}, turn{"", false, 0, -1, false, 0}},
		{"after Config.Probe", State{Pace: Probed}, nil, nil, answer.Answer{}, turn{unlimited, false, 0, -1, false, 0}},
		{"a limit is told", State{}, nil, nil, window, turn{in10s, true, 0, -1, false, 0}},
		{"a limit is told, without spending", State{}, nil, func(c *Config) { c.Spends = false }, window, turn{evenly, false, 0, 40, false, 0}},
		{"a limit is told where it is not learned", State{}, nil, func(c *Config) { c.Learns = false }, window, turn{"", false, 0, -1, false, 0}},
		{"a part of the limit is left to others", State{}, nil, func(c *Config) { c.Reserve = 0.5 }, window, turn{"window 50/10s", true, 0, -1, false, 0}},
		{"an old answer", State{newest: 3, Pace: spaced()}, nil, nil, change(window, func(a *answer.Answer) { a.Limit = 9 }), turn{evenly, false, 0, -1, false, 0}},
		{"a forgotten key", State{}, func(c *Call) { c.Forgotten = true }, nil, window, turn{"", false, 0, -1, false, 0}},
		{"a key without room", State{Unrecorded: true}, func(c *Call) { c.Forgotten = true }, nil, window, turn{"", false, 0, 40, false, 0}},
		{"calls are spaced apart", State{Delay: s, Pace: guessed(1)}, nil, nil, window, turn{"funnel 1, 1/s", false, 0, 40, false, 0}},
		{"only a rest is told", State{}, nil, nil, answer.Answer{HasRemaining: true, Remaining: 40, Reset: 5 * s}, turn{"window 41/5s", true, 0, -1, false, 0}},
		{"only a rest is told, without spending", State{}, nil, func(c *Config) { c.Spends = false },
			answer.Answer{HasRemaining: true, Remaining: 40, Reset: 5 * s}, turn{"funnel 1, 41/5208333334ns", false, 0, 40, false, 0}},
		{"nothing is left, and no window told", State{}, nil, func(c *Config) { c.Spends = false },
			answer.Answer{HasRemaining: true, Reset: 5 * s}, turn{"funnel 1, 1/5s", false, 5 * s, 0, false, 0}},
		{"nothing is left, used by others", State{}, nil, func(c *Config) { c.Spends = false }, change(window, func(a *answer.Answer) { a.Remaining = 0 }),
			turn{evenly, false, 5 * s, 0, false, 0}},
		{"nothing is left, used by these calls", State{}, func(c *Call) { c.Units = 50 }, func(c *Config) { c.Spends = false },
			change(window, func(a *answer.Answer) { a.Remaining = 0 }), turn{evenly, false, 0, 0, false, 0}},
		{"two windows", State{}, nil, nil, change(window, func(a *answer.Answer) { a.Limit, a.ResetsLate = 1, true }), turn{"funnel 1, 1/20200ms", false, 0, 40, false, 0}},
		{"two late resets within a window", State{late: began - 9*s, Pace: spaced()}, nil, nil, change(window, func(a *answer.Answer) { a.ResetsLate = true }),
			turn{"funnel 1, 100/10202020203ns", false, 0, 40, false, 0}},
		{"others use it up", State{Pace: spending()}, func(c *Call) { c.Ours = 90 }, nil, window, turn{evenly, false, 0, 40, false, 0}},

		{"the first refusal", State{}, nil, nil, refusal, turn{probed, false, s, -1, false, 0}},
		{"the third in a row", State{Pace: Probed, strikes: 2}, nil, nil, refusal, turn{probed, false, 4 * s, -1, false, 0}},
		{"the hundredth in a row", State{Pace: Probed, strikes: 5000}, nil, nil, refusal, turn{probed, false, time.Hour, -1, false, 0}},
		{"a refusal with a time", State{Pace: Probed, strikes: 2}, nil, nil, after(7 * s), turn{probed, false, 7 * s, -1, false, 0}},
		{"with a reset and nothing left", State{Pace: Probed}, nil, nil, answer.Answer{Refused: true, HasRemaining: true, Reset: 9 * s}, turn{"funnel 1, 1/9s", false, 9 * s, -1, false, 0}},
		{"of a forgotten key", State{Pace: Unlimited}, func(c *Call) { c.Forgotten = true }, nil, after(2 * time.Hour), turn{unlimited, false, time.Hour, -1, false, 0}},
		{"without a known limit", State{Pace: Unlimited}, nil, nil, after(7 * s), turn{"funnel 1, 1/s", false, 7 * s, -1, false, 0}},
		{"of a call before the end of a hold", State{Pace: guessed(100), heldUntil: began + s, strikes: 1}, nil, nil, refusal, turn{"funnel 1, 1/10ms", false, s, -1, false, 0}},
		{"of calls that spend", State{Pace: spending()}, nil, nil, refusal, turn{slower, false, s, -1, false, 0}},
		{"of spaced calls", State{Pace: spaced()}, func(c *Call) { c.Turns = 2 }, nil, change(window, func(a *answer.Answer) { a.Refused = true }), turn{slower, false, s, -1, false, 0}},
		{"by a hidden limit", State{Pace: spending(), guess: guess{since: began - s, served: 20}}, func(c *Call) { c.UnderWay = 1 }, nil,
			answer.Answer{Refused: true, RetryAfter: s, HasRemaining: true, Remaining: 40, Reset: 5 * s}, turn{probed, false, s, -1, true, 0}},
		{"for ever", State{Pace: Unlimited}, nil, nil, after(policy.Never), turn{unlimited, false, 0, -1, false, 0}},

		{"a time that is too long to wait", State{Pace: spaced()}, nil, nil, after(5 * time.Hour), turn{unlimited, false, 0, -1, true, 5 * time.Hour}},
		{"a longer time", overlongUntil(began + 5*time.Hour), nil, nil, after(6 * time.Hour), turn{unlimited, false, 0, -1, true, 6 * time.Hour}},
		{"a shorter time", overlongUntil(began + 5*time.Hour), nil, nil, after(s), turn{unlimited, false, 0, -1, false, 5 * time.Hour}},
		{"a shorter time of the probe", overlongUntil(began + 5*time.Hour), func(c *Call) { c.Probe = true }, nil, after(s), turn{unlimited, false, 0, -1, true, s}},
		{"no other time", overlongUntil(began + 5*time.Hour), func(c *Call) { c.Probe = true }, nil, refusal, turn{unlimited, false, 0, -1, false, 5 * time.Hour}},
		{"the probe is served", overlongUntil(began + 5*time.Hour), func(c *Call) { c.Probe = true }, nil, answer.Answer{}, turn{unlimited, false, 0, -1, true, 0}},
		{"another is served", overlongUntil(began + 5*time.Hour), nil, nil, window, turn{unlimited, false, 0, -1, false, 5 * time.Hour}},
	} {
		config := testConfig
		if c.config != nil {
			c.config(&config)
		}
		call := Call{Number: 2, Turns: 2, Sent: began - 20*time.Millisecond, Units: 1, First: true}
		if c.call != nil {
			c.call(&call)
		}
		c.state.Config = &config
		assert.Equal(t, c.want, turnOf(c.state.Answered(call, began, c.answer), began), c.name)
	}
}

// A limit that is told holds, whatever rate refusals have told before.
func TestToldLimitIsNotGuessed(t *testing.T) {
	s := Start(&testConfig, 0, 0)
	call := Call{Number: 1, Turns: 1, Units: 1, First: true}
	s.Answered(call, began, answer.Answer{})
	call.Number, call.Turns = 2, 2
	s.Answered(call, began, answer.Answer{Refused: true, RetryAfter: time.Second})
	call.Sent = began + time.Second
	for now := call.Sent; now < call.Sent+time.Minute; now += time.Second {
		call.Number, call.Turns, call.Waited = call.Number+1, call.Turns+1, true
		assert.Equal(t, in10s, turnOf(s.Answered(call, now, window), now).limit)
	}
}

// A call that had its turn as another was refused is refused within the hold. Its few units tell no rate.
func TestRefusalWithinAHoldSlowsNothing(t *testing.T) {
	s := Start(&testConfig, began, 0)
	call := Call{Number: 1, Turns: 1, Sent: began, Units: 1, First: true}
	s.Answered(call, began, answer.Answer{})
	for call.Number < 20 {
		call.Number++
		s.Answered(call, began, answer.Answer{})
	}
	call.Number, call.Turns = 21, 21
	first := turnOf(s.Answered(call, began, answer.Answer{Refused: true}), began)
	call.Number, call.Turns, call.Sent = 22, 22, began+time.Microsecond
	second := turnOf(s.Answered(call, began+3*time.Millisecond, answer.Answer{Refused: true}), began)
	assert.Equal(t, turn{"funnel 1, 1/50ms", false, time.Second, -1, false, 0}, first)
	assert.Equal(t, first, second)
}

// It is neither a served call nor a refusal where the pace is learned from refusals.
func TestFinalRefusalTellsNoRate(t *testing.T) {
	s := Start(&testConfig, 0, 0)
	call := Call{Number: 1, Turns: 1, Sent: began, Units: 1, First: true}
	s.Answered(call, began, answer.Answer{})
	before := s
	call.Number, call.Turns = 2, 2
	s.Answered(call, began, answer.Answer{Refused: true, RetryAfter: policy.Never})
	before.newest = 2
	assert.Equal(t, before, s)
}

func TestAbandonedCallEndsProbeOrTrial(t *testing.T) {
	trying := secondary{Quota: answer.Quota{Window: time.Second}, trial: &trial{pace: spaced(), remaining: 40, reset: time.Second}}
	for _, c := range []struct {
		name  string
		state State
		call  Call
		want  string
	}{
		{"the first", State{}, Call{Turns: 1}, probed},
		{"the first, in a back-off", State{}, Call{Turns: 1, Holding: true}, ""},
		{"the first of a forgotten key", State{}, Call{Turns: 1, Forgotten: true}, ""},
		{"the first, with others behind", State{}, Call{Turns: 2}, ""},
		{"after an answer", State{newest: 1}, Call{Turns: 1}, ""},
		{"the last of a trial", State{Pace: Probed, newest: 1, secondary: trying}, Call{Turns: 5}, slower},
		{"another of a trial", State{Pace: Probed, newest: 1, secondary: trying}, Call{Turns: 5, UnderWay: 1}, probed},
	} {
		c.state.Config = &testConfig
		assert.Equal(t, c.want, turnOf(c.state.Abandoned(c.call), 0).limit, c.name)
	}
}

// A forgotten limit has kept the calls within it until then, so that they say nothing of it.
func TestForgottenLimitIsCountedAnew(t *testing.T) {
	const now = time.Hour
	s := Start(&testConfig, 0, 0)
	s.Pace = &Pace{Terms: answer.Terms{Count: quota.Limit, Window: quota.Window}, Limit: InSteps(quota.Limit, quota.Window, now, Known{})}
	s.secondary = secondary{Quota: quota, served: 10000}
	s.guess.Serve(now-time.Second, 20, false)
	before := s.Pace
	assert.Same(t, before, s.Begin(now-1, 3).Pace, "the window is not over")
	assert.NotZero(t, s.guess)
	assert.Equal(t, now, s.Begin(now, 3).Pace.Opened)
	assert.Zero(t, s.secondary)
	var begun guess
	begun.Begin(now)
	assert.Equal(t, begun, s.guess)
}

func TestEntranceInAnOverlongTime(t *testing.T) {
	const hour = time.Hour
	for _, c := range []struct {
		name          string
		until, probe  time.Duration
		claims        bool
		want          turn
		fails, probes bool
		// next is the time of the next probe.
		next time.Duration
	}{
		{"none", 0, 0, true, turn{limit: unlimited, left: -1}, false, false, 0},
		{"before the probe", began + 5*hour, began + 1, true, turn{limit: unlimited, left: -1, fails: 5 * hour}, true, false, began + 1},
		{"the probe", began + 5*hour, began, true, turn{limit: unlimited, left: -1, fails: 5 * hour}, false, true, began + 2*hour},
		{"the probe is due", began + 5*hour, began, false, turn{limit: unlimited, left: -1, fails: 5 * hour}, false, false, began},
		{"no longer too long", began + hour, began + 1, true, turn{left: -1, restart: true, hold: hour}, false, false, 0},
		{"its end", began, 0, true, turn{left: -1, restart: true, hold: 1}, false, false, 0},
	} {
		s := State{Config: &testConfig, Pace: Unlimited, overlong: overlong{c.until, c.probe, hour}}
		change, fails, probes := s.Enter(began, c.claims)
		assert.Equal(t, c.want, turnOf(change, began), c.name)
		assert.Equal(t, [2]bool{c.fails, c.probes}, [2]bool{fails, probes}, c.name)
		assert.Equal(t, c.next, s.overlong.probe, c.name)
		s.Unsent()
		_, fails, probes = s.Enter(began, true)
		assert.Equal(t, [2]bool{false, s.overlong.until > 0}, [2]bool{fails, probes}, "the next call is the probe: %s", c.name)
	}
}

// A window of 100 was opened after a minute.
func TestChargeUnderAPace(t *testing.T) {
	window := &Pace{Terms: answer.Terms{Count: 100}, Limit: InSteps(100, time.Second, began+time.Second, Known{}), Opened: began}
	rest := *spaced()
	rest.Expires, rest.Count = time.Hour, 10
	for _, c := range []struct {
		name  string
		pace  *Pace
		n     int64
		sent  time.Duration
		early bool
		want  int64
	}{
		{"no pace", nil, -7, began, true, -7},
		{"in the window", window, -7, began, true, -7},
		{"before the window", window, -7, began - 1, false, 0},
		{"before the window, more", window, 7, began - 1, false, 0},
		{"taken before the limit", spaced(), -7, began, true, 0},
		{"more than before the limit", spaced(), 7, began, true, 7},
		{"taken before the server told no limit", Unlimited, -7, began, true, -7},
		{"a rest", &rest, 70, began, false, 10},
		{"back of a rest", &rest, -70, began, false, -10},
	} {
		assert.Equal(t, c.want, c.pace.Charge(c.n, c.sent, c.early), c.name)
	}
}

func TestExcessAfterAHold(t *testing.T) {
	have := policy.Decision{Remaining: 30, ResetAfter: 7 * time.Second}
	for name, c := range map[string]struct {
		limit policy.Policy
		after time.Duration
		want  int64
	}{
		"a bucket drains":        {policy.Must(policy.Funnel(100, 10, time.Second)), time.Second, 39},
		"a bucket drains longer": {policy.Must(policy.Funnel(100, 10, time.Second)), time.Minute, 629},
		"a window":               {policy.Must(policy.FixedWindow(100, time.Minute)), time.Hour, 29},
		"calls wait in a queue":  {policy.Must(policy.Queue(20, 10, time.Second)), time.Hour, 0},
	} {
		assert.Equal(t, c.want, BurstOf(c.limit).Excess(have, c.after), name)
	}
}
