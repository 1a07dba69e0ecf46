package outgoing

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/outgoing/internal/answer"
	"github.com/ral-limiter/ral/policy"
)

const (
	// defaultMaxWaiting is the default of engine.Config.MaxWaiting.
	defaultMaxWaiting = 1024
	maxUnits          = 7
)

// Config configures a Line. A Line with the zero Config learns each key's limit from the answers.
// Negative values are errors.
type Config struct {
	// Name is the name of the line's engine in errors and metrics. The default is "outgoing".
	Name string

	// Policy is the limit of each key, for servers that advertise none. The line
	// then ignores advertised limits, and still obeys refusals. Choose a policy that spaces calls, such
	// as policy.Funnel: windows release all their calls at once, even after a refusal. If Policy is nil,
	// the line learns the limit: see docs/outgoing.md.
	Policy policy.Policy

	// InFlight is the limit of each key's calls at once, for servers that admit only so many, such as
	// policy.Must(policy.InFlight(4, time.Minute)). It holds in addition to the key's rate. A call is in flight
	// from its turn until [Turn.Release], Cancel or Abandon, or for the policy's longest time. A Transport
	// releases its own requests. The default, nil, is no limit. While MaxKeys keys have calls in flight, calls of
	// other keys get engine.ErrUnavailable.
	InFlight policy.Policy

	// Patience is the longest wait; a call with a later turn gets engine.ErrDeadline at once. 0
	// waits as long as the context allows.
	Patience time.Duration

	// MaxWaiting bounds the waiting calls per key. More get engine.ErrCrowded. The default is 1024.
	MaxWaiting int

	// MaxKeys bounds the remembered keys. The line learns nothing about keys beyond MaxKeys. The default is 65536.
	MaxKeys int

	// Idle is how long a key without waiting calls is remembered after its last call and back-off.
	// It may be remembered longer, since keys are forgotten when other keys join. The default is 5 minutes.
	Idle time.Duration

	// Probe is how long the calls of an unknown key wait for the answer to its first call. After
	// that they go, 10 milliseconds apart. The default is 5 seconds.
	Probe time.Duration

	// Backoff is how long all calls of a key wait after a refusal that states no time. It doubles with each refusal in a
	// row, up to MaxBackoff. The default is a second.
	Backoff time.Duration

	// MaxBackoff is the longest time stated by an answer for which a call waits, at most 4 years
	// (35040h). While more than MaxBackoff is left of a stated time, each call of the key fails at once
	// with a *TurnError that names the server's time. As a server may err, one call is sent as a probe
	// after MaxBackoff, and the next probes after 2, 4, 8 and so on times MaxBackoff. If a probe is
	// served, the stated time is over. Line.Reset also ends it. Patience alone bounds waits for other
	// calls and for a learned limit. The default is an hour.
	MaxBackoff time.Duration

	// Pace says how calls use a learned limit. The default is Spend.
	Pace Pace

	// Units names further limits of each key, in units that calls cost, as header fields name them,
	// such as "tokens": see [Line.Wait]. The line learns these limits, even if Policy sets the limit of calls.
	Units []string

	// Debts reports whether servers admit a call that costs more than the limit they state, and let
	// it owe the excess. If Debts is false, such a call gets engine.ErrNever at once, and its refusal
	// makes no other call wait.
	Debts bool

	// Reserve is the fraction, from 0 to below 1, that this line leaves to other clients of each limit
	// that answers state with its window.
	Reserve float64

	// Jitter is the longest random extension of a back-off, so that processes do not return
	// together. It is drawn per refusal for the whole key: calls keep their order. The default is
	// 0.
	Jitter time.Duration

	// OnTurn, if not nil, is called for each turn before Wait returns, and for each call whose turn would come too late.
	// Decision.Wait is how long the call waited. limit is Name, and for one of Units also the unit.
	// Set it to ralotel.TraceDecision to have waits in traces.
	OnTurn func(ctx context.Context, limit string, d policy.Decision)

	// Logger gets a warning about the first reset that is ignored: see Stats.BadResets. The
	// default is slog.Default().
	Logger *slog.Logger
}

// Pace says how calls use a limit.
type Pace int

const (
	// Spend sends calls at once while the server has units left, and then waits for its reset. Calls
	// are spaced instead after a refusal, if other clients use up the limit, and under a limit counted
	// in two windows. If there are several limits, the limit with the least left applies.
	Spend Pace = iota
	// Even spaces calls over the limit's time.
	Even
)

func (c Config) withDefaults() Config {
	c.Name = cmp.Or(c.Name, "outgoing")
	c.Patience = cmp.Or(c.Patience, 10*365*24*time.Hour)
	c.MaxKeys = cmp.Or(c.MaxKeys, 1<<16)
	c.Idle = cmp.Or(c.Idle, 5*time.Minute)
	c.Probe = cmp.Or(c.Probe, 5*time.Second)
	c.Backoff = cmp.Or(c.Backoff, time.Second)
	c.MaxBackoff = cmp.Or(c.MaxBackoff, time.Hour)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return c
}

// validate finds bad fields. The engine checks Name, MaxWaiting, MaxKeys and Idle.
func (c Config) validate() error {
	bad := func(field string, value any, want string) error {
		return &policy.FieldError{Of: "outgoing.Config", Field: field, Value: value, Want: want}
	}
	_, occupies := c.Policy.(policy.Occupier)
	_, inFlight := c.InFlight.(policy.Occupier)
	switch {
	case c.Policy != nil && shape.IsNil(c.Policy):
		return bad("Policy", "a nil pointer", "a policy, or nil to learn the limit")
	case occupies:
		return bad("Policy", c.Policy, "a limit of calls in time: that of calls at once is InFlight")
	case c.InFlight != nil && (!inFlight || shape.IsNil(c.InFlight)):
		return bad("InFlight", c.InFlight, "a policy.InFlight, or nil for no limit")
	case c.Patience < 0:
		return bad("Patience", c.Patience, "a positive duration, or 0 for as long as the context allows")
	case c.MaxWaiting < 0:
		return bad("MaxWaiting", c.MaxWaiting, "1 or more, or 0 for 1024")
	case c.MaxKeys < 0:
		return bad("MaxKeys", c.MaxKeys, "1 or more, or 0 for 65536")
	case c.Idle < 0:
		return bad("Idle", c.Idle, "a positive duration, or 0 for 5m")
	case c.Probe < time.Millisecond && c.Probe != 0 || c.Probe > time.Hour:
		return bad("Probe", c.Probe, "1ms to 1h, or 0 for 5s")
	case c.MaxBackoff < 0 || c.MaxBackoff > answer.MaxTime:
		return bad("MaxBackoff", c.MaxBackoff, "1ns to 35040h, or 0 for 1h")
	case c.Backoff < 0 || c.Backoff > answer.MaxTime:
		return bad("Backoff", c.Backoff, "1ns to 35040h, or 0 for 1s")
	case c.Pace != Spend && c.Pace != Even:
		return bad("Pace", c.Pace, "Spend or Even")
	case !(c.Reserve >= 0 && c.Reserve < 1):
		return bad("Reserve", c.Reserve, "0 or more, and below 1")
	case c.Jitter < 0 || c.Jitter > time.Hour:
		return bad("Jitter", c.Jitter, "0 to 1h")
	case len(c.Units) > maxUnits:
		return bad("Units", len(c.Units), fmt.Sprintf("at most %d", maxUnits))
	}
	for i, unit := range c.Units {
		if unit == "" || strings.Trim(unit, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" || unit == "requests" || slices.Contains(c.Units[:i], unit) {
			return bad("Units", fmt.Sprintf("%.80q", unit), "different names of lower-case letters, digits, - and _; requests are counted anyway")
		}
	}
	return nil
}
