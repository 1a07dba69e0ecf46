package outgoing

import "time"

const (
	// Between two refusals a limit in use has passed as many calls as it allows in that time: enough
	// calls tell its rate. Calls go on at guessShare of that, and faster by gain whenever stepCalls
	// calls in a row waited and were served, and stepTime has passed. Farther than near from the
	// known rate, the gain doubles with each step, up to maxGain.
	guessShare = 0.97
	lastShare  = 0.95
	enough     = 4
	gain       = 0.005
	maxGain    = 0.15
	near       = 1.06
	stepCalls  = 10
	stepTime   = time.Second
)

// guess is the state of a key whose server tells no limit.
type guess struct {
	since  time.Duration // the last refusal behind served calls, since Line.began
	held   time.Duration // how long it held the key
	served int64         // units of served calls since
	lined  int64         // units of those that waited
	before int64         // units served in the minute before since, while no rate is known

	rate    float64 // calls a second, 0 if unknown
	known   float64 // the rate that the latest refusals told
	gain    float64
	waited  int64 // calls that waited and were served, since stepped
	stepped time.Duration
}

// begin begins to count served calls.
func (g *guess) begin(now time.Duration) { g.since, g.served, g.lined, g.before = now, 0, 0, 0 }

// slowDown sets the pace of a key after a refusal that holds it for a time.
func (l *Line[K]) slowDown(t *part[K], now, held time.Duration) {
	g := &t.state.mu.guess
	g.waited, g.stepped = 0, now+held
	rate := float64(g.served) / max(now-g.since-min(g.held, (now-g.since)/2), time.Millisecond).Seconds()
	if g.rate == 0 {
		rate = float64(g.served) / max(now-g.since, held).Seconds() // of a burst
	}
	switch {
	case g.rate == 0:
		g.rate = max(rate, 1)
	case g.served < enough || g.lined < g.served/2: // too few, or the limit was not in use
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
		g.since, g.held, g.served, g.lined = now, held, 0, 0
	}
	l.setGuess(t)
}

// speedUp counts a served call, and sets a higher pace from time to time.
func (l *Line[K]) speedUp(t *part[K], now time.Duration) {
	g := &t.state.mu.guess
	if g.rate == 0 && now-g.since > time.Minute {
		g.since, g.served, g.lined, g.before = now, 0, 0, g.served
	}
	g.served += t.n
	t.state.mu.secondary.served += t.n
	if t.held.Waited > 0 {
		g.lined += t.n
		g.waited++
	}
	if g.rate == 0 || g.waited < stepCalls && g.known > 0 || now-g.stepped < stepTime {
		return
	}
	if g.rate > near*g.known || g.rate*near < g.known {
		g.gain = min(2*g.gain, maxGain)
	} else {
		g.gain = gain
	}
	g.rate *= 1 + g.gain
	g.waited, g.stepped = 0, now
	l.setGuess(t)
}

func (l *Line[K]) setGuess(t *part[K]) {
	g := &t.state.mu.guess
	g.rate = min(max(g.rate, 1/l.config.MaxBackoff.Seconds()), maxRate)
	l.setPace(t.key, t.state, &pace{guessed: true, limit: evenly(1, 1, time.Duration(float64(time.Second)/g.rate))})
}

// guesses reports whether the pace is for a server that tells no limit.
func (p *pace) guesses() bool { return p == unlimited || p != nil && p.guessed }
