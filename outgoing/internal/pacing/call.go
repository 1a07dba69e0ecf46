package pacing

import (
	"time"

	"github.com/ral-limiter/ral/outgoing/internal/answer"
)

// Config has the settings of a line that decisions depend on.
type Config struct {
	// Learns reports whether limits are learned from answers. Otherwise only back-offs are.
	Learns bool
	// Spends reports whether calls may have at once what a server has left.
	Spends bool
	// Reserve is the fraction of each limit that is left to others.
	Reserve float64
	// Probe is how long the answer to a first call is waited for.
	Probe time.Duration
	// Backoff is the first hold of a refusal without a time. Longer holds than MaxBackoff fail calls.
	Backoff, MaxBackoff time.Duration
}

// MaxReset returns the longest time until a reset that is believed: servers round a reset up to seconds, and a
// sliding window resets within two.
func (c *Config) MaxReset(answered *answer.Answer) time.Duration {
	return max(c.MaxBackoff, 2*min(answered.Window, answer.MaxTime)) + time.Second
}

// Call is an answered call, with its key's figures at the time of the answer.
type Call struct {
	// Number is the number of the call's turn, and Turns is the number of the key's last turn.
	Number, Turns uint64
	// Sent is when the call was sent, and Units how many units it takes.
	Sent  time.Duration
	Units int64
	// First reports whether this is the first answer to the call, by the limit that has decided it. Waited
	// reports whether the call waited for its turn, and Probe whether it is the probe of an overlong time.
	First, Waited, Probe bool
	// Forgotten reports whether the state is not the key's: the state was forgotten after the call had
	// its turn, or there was no room for it. Nothing is learned then.
	Forgotten bool
	// Later is the number of units of other calls that were not answered before this one was sent. UnderWay is the
	// number of units of calls that are not answered yet, and Waiting of calls that wait for their turn.
	Later, UnderWay, Waiting int64
	// Ours is the number of units that the key has left, if its calls spend already.
	Ours int64
	// Holding reports whether the key is held, if its limit is unknown.
	Holding bool
}
