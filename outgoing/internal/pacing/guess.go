package pacing

import "time"

const (
	// Between two refusals a limit in use has passed as many calls as it allows in that time: enough
	// calls tell its rate. Calls go on at guessShare of that, and faster by gain whenever stepCalls
	// calls in a row waited and were served, and stepTime has passed. While the rate is off the known
	// rate by more than the factor near, the gain doubles with each step, up to maxGain.
	guessShare = 0.97
	lastShare  = 0.95
	enough     = 4
	gain       = 0.005
	maxGain    = 0.15
	near       = 1.06
	stepCalls  = 10
	stepTime   = time.Second
)

// guess counts a key's served calls, and has the rate that refusals have told if the server tells no limit.
type guess struct {
	// since is when the count of served calls began, as at the last refusal that told a rate.
	since time.Duration
	// hold is how long that refusal makes calls wait.
	hold time.Duration
	// served is the units of served calls since.
	served int64
	// lined is the units of served calls that waited.
	lined int64
	// before is the units served in the minute before since, while no rate is known.
	before int64

	// rate is in calls a second, 0 if unknown.
	rate float64
	// known is the rate that the latest refusals told.
	known float64
	gain  float64
	// waited is the number of calls that waited and were served, since stepped.
	waited  int64
	stepped time.Duration
}

// Begin begins to count served calls.
func (g *guess) Begin(now time.Duration) { g.since, g.served, g.lined, g.before = now, 0, 0, 0 }

// SlowDown lowers the rate after a refusal that holds the key for a time.
func (g *guess) SlowDown(now, hold time.Duration) {
	g.waited, g.stepped = 0, now+hold
	rate := float64(g.served) / max(now-g.since-min(g.hold, (now-g.since)/2), time.Millisecond).Seconds()
	if g.rate == 0 {
		// The rate is that of a burst.
		rate = float64(g.served) / max(now-g.since, hold).Seconds()
	}
	switch {
	case g.rate == 0:
		g.rate = max(rate, 1)
	// The calls are too few, or the limit was not in use.
	case g.served < enough || g.lined < g.served/2:
		g.rate *= guessShare
	default:
		// While the gain is raised, or the measured rate exceeds half the pace, the true rate is near the
		// refused pace.
		if g.known = rate; g.gain > gain || rate > g.rate/2 {
			g.known = max(rate, lastShare*g.rate)
		}
		g.rate = guessShare * g.known
	}
	g.gain = gain
	if g.served >= enough {
		g.since, g.hold, g.served, g.lined = now, hold, 0, 0
	}
}

// Serve counts a served call of n units.
func (g *guess) Serve(now time.Duration, n int64, waited bool) {
	if g.rate == 0 && now-g.since > time.Minute {
		g.since, g.served, g.lined, g.before = now, 0, 0, g.served
	}
	g.served += n
	if waited {
		g.lined += n
		g.waited++
	}
}

// SpeedUp raises the rate from time to time, and reports whether it did.
func (g *guess) SpeedUp(now time.Duration) bool {
	if g.rate == 0 || g.waited < stepCalls && g.known > 0 || now-g.stepped < stepTime {
		return false
	}
	if g.rate > near*g.known || g.rate*near < g.known {
		g.gain = min(2*g.gain, maxGain)
	} else {
		g.gain = gain
	}
	g.rate *= 1 + g.gain
	g.waited, g.stepped = 0, now
	return true
}

// Pace returns the pace of the rate, with calls at most maxPause apart.
func (g *guess) Pace(maxPause time.Duration) *Pace {
	g.rate = min(max(g.rate, 1/maxPause.Seconds()), maxRate)
	return &Pace{Guessed: true, Limit: Evenly(1, 1, time.Duration(float64(time.Second)/g.rate))}
}
