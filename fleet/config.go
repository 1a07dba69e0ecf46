package fleet

import (
	"fmt"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/internal/core/penalty"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/observe/eventlog"
	"github.com/ral-limiter/ral/policy"
)

// The defaults of Config; all except the first as package engine has them.
const (
	defaultBudget          = 5 * time.Millisecond
	defaultMaxKeys         = 1 << 20
	defaultMaxWaiting      = 1024
	defaultMaxWaitingTotal = 1 << 16
)

const longestBudget = time.Minute

// Mode says where calls are decided.
type Mode uint8

const (
	// Exact: each call in Redis, by one script.
	Exact Mode = iota
	// Leased: each server by itself, on units that it took from Redis ahead of need, for
	// Config.Term at most. They are paid in advance, so that the fleet never admits more
	// than the limit, whatever dies or is late; what a dead server held of a Funnel has
	// drained after a term, of a window it is lost until that ends. Of a Funnel's capacity
	// what drains in a term is kept back for that. A RetryAfter is when this server will
	// ask Redis again; it is no promise, as others may be faster. If servers want more than
	// there is, the first to ask has it. A key with fewer than 8 calls a term is decided as
	// in Exact mode, so that no key costs Redis more commands than there.
	Leased
)

// Fallback says how calls are answered while Redis does not.
type Fallback uint8

const (
	// FallbackShare: each server keeps the limit divided by how many servers there are (see
	// Config.Servers), in memory. A key's share begins from what Redis last said of the key
	// to this server: where a part of the limit was used, the same part of the share is.
	// So an outage that all servers see at once is no second burst. Redis and the shares
	// together admit the limit once, and in addition what other servers took of a key
	// after this one last asked about it.
	//
	// A key of which this server knows nothing is treated as used up when Redis was last
	// heard, except for one unit, and as used up altogether if this server has not reached
	// Redis since it started. From there the share comes back evenly, over as long as a key
	// that used all takes to drain. A server does not know a key if it has not asked about
	// it for that long.
	//
	// What a share let pass is charged when Redis is back, as far as it still counts, and
	// goes on counting here. Until then Redis admits as if those units were free. Once
	// charged they count there, so one outage adds at most one capacity.
	//
	// The calls that are answered without Redis keep to the limit by themselves, over all
	// outages and late answers of servers that keep running, as far as the servers know how
	// many they are. What a server let pass and had not charged when it ended is forgotten,
	// unless Config.StateFile keeps it. Without that, a fleet that is restarted in every
	// outage admits up to the limit by shares in each.
	// Where only some servers lose Redis, their shares come in addition to what Redis
	// admits to the others.
	FallbackShare Fallback = iota
	// FallbackOpen: every call passes that asks for no more than the limit. Nothing is
	// recorded.
	FallbackOpen
	// FallbackClosed: every call is refused.
	FallbackClosed
)

// Config is what a limiter is made with. Name, Policy, and one of Client, Redis and Via are
// required; every other field that is left zero takes its default. Negative values are
// refused. All servers of a fleet must be given the same Name, Tag, Policy, Mode and
// Epoch.
type Config struct {
	// Client is a client of the caller's, which Close leaves open. What is said of Redis
	// below about AlwaysPipelining and time-outs is good advice for it, too.
	//
	// The limiter does not see the connections of a Client. Where a Redis ends them, Health
	// has what the client says, often only EOF, and not what Redis says to a new connection.
	// A Redis that comes in place of another is checked for eviction when the breaker
	// closes. If the breaker did not open, it is checked within five seconds.
	Client rueidis.Client
	// Redis says where to connect, in place of Client: to a single server, a cluster or
	// sentinels. The limiter connects in the background, and tries again as long as no
	// server answers. Some fields that are left zero get defaults that suit a limiter:
	// AlwaysPipelining and DisableCache are always set; Dialer.Timeout and
	// ConnWriteTimeout are a second, so that connections which died are given up soon;
	// PipelineMultiplex is one connection, and its buffers have 64 KiB.
	Redis rueidis.ClientOption

	// Via, in place of Client and Redis, is another limiter whose client this one uses, so that
	// TakeAll can have keys of both. It must be closed after this one.
	Via *Limiter

	// Name is that of the limit, and part of its keys' names in Redis: 1 to 64 bytes,
	// without braces, spaces and control characters.
	Name string
	// Tag, if not empty, keeps all keys of the limit on one node of a cluster, together
	// with those of other limits of the same Tag, so that TakeAll can have them all at
	// once. It is like Name otherwise. A server with another Tag under the same Name is of
	// another fleet, and nothing notices: neither Stats.Servers nor ErrLimits.
	Tag string

	// Policy is the limit that holds for each key: a Funnel, FixedWindow, SlidingWindow,
	// Bursty, Queue or AlignedWindow of package policy, or a SlidingLog. Leased mode wants one
	// of the first three. New refuses others, such as a CalendarWindow: Redis has no script for
	// them. An AlignedWindow has at most 2^52 units, in whole microseconds. Its windows begin by
	// Redis's clock, and by this server's while Redis is away.
	Policy policy.Policy

	// PolicyFor, if not nil, returns the limit that holds for a key; nil is Policy. Others are
	// treated as by Limiter.TakeWith, so they must be of Policy's family, and a key's limit
	// may change at any time. It runs on the goroutine of each call, so it should be fast, and
	// must be safe for concurrent use. It should return policies that were made beforehand.
	// A limiter takes 1,024 limits of different text, with those of TakeWith: calls that need
	// more get ErrTooManyLimits. All servers must choose alike. With it, SetPolicy is refused: let it return another
	// policy instead. Leased mode does not have it.
	PolicyFor func(key string) policy.Policy

	// Penalty blocks keys that go on calling although they are refused. Its times are rounded up to
	// microseconds, which is what Redis's clock counts. Redis counts the
	// refusals of all servers, each in the step that decides the call, so that exactly
	// Penalty.Refusals block. Any call counts that Redis refuses by the key's limit, and once
	// in a TakeAll. Those that were answered without Redis do not count, nor do those refused
	// by a block or with policy.Never. All servers should be given the same. The default
	// blocks none, and neither does Leased mode, which refuses calls without counting them;
	// Limiter.Block blocks a key by itself, in both modes.
	Penalty engine.Penalty

	// Mode is Exact (default) or Leased.
	Mode Mode
	// Term is the longest time that a lease lasts, in Leased mode: 10 ms to a minute; less if
	// half of a Funnel drains, or a window ends, sooner. The default is ten round trips to
	// Redis, between 250 ms and a second, and for a Funnel at most an eighth of the time in
	// which it drains, though 50 ms at least. What drains in the longest term is kept back of a
	// Funnel's capacity: by default that is a second's worth, or an eighth of the capacity if
	// that is less. Of 1,000 units at 1,000 a second it is 125, so that a burst has 875, as
	// Answer.Limit says. All servers of a fleet must be given the same Term.
	Term time.Duration

	// Budget is the longest that a call may wait for Redis, up to a minute. Then Outage
	// answers, unless the answer to an earlier call for the same key and number of units
	// came meanwhile, too late for that one: Redis decided it up to 100 ms, or the budget if
	// that is longer, before it came. Budget says nothing of Redis, which is judged by when
	// its answers arrive. A server that is short of processors spends budgets on its own:
	// each call may also wait for a turn of the scheduler. The default is 5 ms.
	Budget time.Duration
	// Outage is FallbackShare (default), FallbackOpen or FallbackClosed.
	Outage Fallback
	// Servers is the least by which FallbackShare divides the limit. Set it to how many
	// servers there are, or may be when all are restarted while Redis is away. Servers
	// that reach Redis are counted, and more of them divide by more, at once. A server
	// that left is forgotten after a minute, and one that died after two; time in which
	// Redis is away does not count.
	//
	// The default, 0, is to go by that count alone. A server that has not reached Redis
	// since it started has none: it refuses, and Answer.Err and Health are ErrUncounted.
	Servers int
	// MaxKeys bounds how many keys are kept in memory, as blocked, by leases (see
	// engine.Config) and by FallbackShare: so many keys of which Redis said something while it was there, at
	// about 50 bytes each, and so many with a share, at about 110 bytes and up to 130
	// for the name of each that is to be charged; of each limit that comes with calls as
	// many again. The length of keys does not matter. The
	// default is 1<<20.
	MaxKeys int

	// MaxWaiting bounds how many calls may wait for one key on this server, by Wait and
	// Acquire. Further ones get engine.ErrCrowded if they would have to wait; Redis is asked for
	// them without patience, and promises them no turn. A call counts from when it asks, so
	// that the bound is never exceeded. The default is 1024. Calls of Reserve do not count.
	MaxWaiting int
	// MaxWaitingTotal bounds how many calls may wait for all keys together on this server.
	// Further ones get engine.ErrCrowded likewise. The default is 65536.
	MaxWaitingTotal int

	// StateFile, if not empty, is the path of a file in which FallbackShare keeps what it
	// let pass without Redis and has not charged yet, over restarts. It is read by New,
	// written within about a second of a change, and by Close. It holds keys, with mode
	// 0600. One limiter has it at a time: another gets ErrStateFile. A file that New cannot
	// read is an error and is left as it is.
	//
	// After a Close nothing is lost, and nothing is charged twice. A server that is killed
	// loses at most what was let pass since the last save, and charges again at most what
	// was charged since then. The keys in the file go on with what is left of their shares.
	// The wall clock says how much of them has come back meanwhile; one that went back
	// brings nothing back. If the limit was changed, the units count from the start of the
	// server. A key that owes nothing is not in the file, and begins as any key of which
	// this server knows nothing. What was let pass under a limit other than Policy is not
	// kept. An AlignedWindow has no StateFile.
	StateFile string

	// Epoch is what Redis's time is counted from, in whole seconds. The default is
	// 2026-01-01 UTC; limits that count in windows have time for 9 years from there,
	// others for 17. Another epoch needs another Name, for it gives the words of all keys
	// another meaning.
	Epoch time.Time

	// OnEvent is told when an outage begins and ends, and what else should be in a log. nil is
	// LogEvents to slog.Default. It is called by one goroutine, which does nothing else meanwhile;
	// Close waits for it, so that it must not call Close.
	OnEvent func(Event)

	// clock is read in place of Redis's, for tests: see store.Options.
	clock func() int64
}

// withDefaults fills in what was left zero. This is the only place that does.
func (c Config) withDefaults() Config {
	if c.Budget == 0 {
		c.Budget = defaultBudget
	}
	if c.MaxKeys == 0 {
		c.MaxKeys = defaultMaxKeys
	}
	if r := penaltyRule(c.Penalty); r.Counts() {
		c.Penalty.Max, c.Penalty.Forget = r.Max, r.Forget
	}
	if c.MaxWaiting == 0 {
		c.MaxWaiting = defaultMaxWaiting
	}
	if c.MaxWaitingTotal == 0 {
		c.MaxWaitingTotal = defaultMaxWaitingTotal
	}
	if c.Epoch.IsZero() {
		c.Epoch = store.DefaultEpoch
	}
	if c.OnEvent == nil {
		c.OnEvent = LogEvents(c.Name, eventlog.New(nil))
	}
	if c.Client == nil && c.Via == nil {
		c.Redis = forLimits(c.Redis)
	}
	return c
}

// anchored returns a policy whose windows lie at times of the wall clock, if it is one, for
// instants since the epoch.
func (c Config) anchored(p policy.Policy) policy.Policy {
	if a, ok := p.(policy.Anchored); ok && !shape.IsNil(p) {
		return a.Anchor(c.Epoch)
	}
	return p
}

// forLimits fills in what suits a limiter. One connection makes the largest batches, and
// pipelining has a late answer not cost the connection.
func forLimits(o rueidis.ClientOption) rueidis.ClientOption {
	const (
		patience = time.Second
		buffer   = 64 << 10
	)
	o.AlwaysPipelining = !o.DisableAutoPipelining
	o.DisableCache = true
	if o.Dialer.Timeout == 0 {
		o.Dialer.Timeout = patience
	}
	if o.ConnWriteTimeout == 0 {
		o.ConnWriteTimeout = patience
	}
	if o.PipelineMultiplex == 0 {
		o.PipelineMultiplex = -1
	}
	if o.ReadBufferEachConn == 0 {
		o.ReadBufferEachConn = buffer
	}
	if o.WriteBufferEachConn == 0 {
		o.WriteBufferEachConn = buffer
	}
	return o
}

// connected reports whether Redis has an address to connect to.
func (c Config) connected() bool {
	return len(c.Redis.InitAddress) > 0
}

// validate returns a *policy.FieldError for the first field that is not acceptable. It
// expects the defaults to be filled in. The policy is checked by the part that is to
// keep it.
func (c Config) validate() error {
	bad := func(field string, value any, want string) error {
		return &policy.FieldError{Of: "fleet.Config", Field: field, Value: value, Want: want}
	}
	switch {
	case c.Via != nil && (c.Client != nil || c.connected()):
		return bad("Via", "a limiter", "one of Client, Redis and Via")
	case c.Via == nil && c.Client == nil && !c.connected():
		return bad("Redis", "empty", "a Client, or Redis with an InitAddress")
	case c.Client != nil && c.connected():
		return bad("Redis", c.Redis.InitAddress, "either Client or Redis, not both")
	case !named(c.Name):
		return bad("Name", fmt.Sprintf("%q", c.Name), "1 to 64 bytes without braces, spaces and control characters")
	case c.Tag != "" && !named(c.Tag):
		return bad("Tag", fmt.Sprintf("%q", c.Tag), "up to 64 bytes without braces, spaces and control characters")
	case shape.IsNil(c.Policy):
		return bad("Policy", "nil", "a policy, such as policy.Funnel returns")
	case c.PolicyFor != nil && c.Mode == Leased:
		return bad("PolicyFor", "a function", "none in Leased mode, whose leases are of one limit")
	case c.Penalty != (engine.Penalty{}) && c.Mode == Leased:
		return bad("Penalty", fmt.Sprintf("%+v", c.Penalty), "none in Leased mode, where servers refuse calls by themselves")
	case c.Mode > Leased:
		return bad("Mode", int(c.Mode), "Exact or Leased")
	case c.Term < 0:
		return bad("Term", c.Term, "a positive duration, or 0 for the default")
	case c.Budget < 0 || c.Budget > longestBudget:
		return bad("Budget", c.Budget, "a positive duration of up to a minute, or 0 for 5ms")
	case c.Outage > FallbackClosed:
		return bad("Outage", int(c.Outage), "FallbackShare, FallbackOpen or FallbackClosed")
	case c.StateFile != "" && c.Outage != FallbackShare:
		return bad("StateFile", fmt.Sprintf("%q", c.StateFile), "none, unless Outage is FallbackShare: nothing else is charged later")
	case c.StateFile != "" && isAnchored(c.Policy):
		return bad("StateFile", fmt.Sprintf("%q", c.StateFile), "none with an AlignedWindow: of what a share let pass it is not known afterwards which window it was in")
	case c.Servers < 0:
		return bad("Servers", c.Servers, "how many servers share the limit, or 0 to count them")
	case c.MaxKeys < 0:
		return bad("MaxKeys", c.MaxKeys, "1 or more, or 0 for 1048576")
	case c.MaxWaiting < 0:
		return bad("MaxWaiting", c.MaxWaiting, "1 or more, or 0 for 1024")
	case c.MaxWaitingTotal < 0:
		return bad("MaxWaitingTotal", c.MaxWaitingTotal, "1 or more, or 0 for 65536")
	case c.Epoch.After(time.Now()):
		return bad("Epoch", c.Epoch.Format(time.RFC3339), "a time that has passed")
	case c.Epoch.Before(time.Unix(0, 0)):
		return bad("Epoch", c.Epoch.Format(time.RFC3339), "1970 or later")
	}
	if c.Penalty != (engine.Penalty{}) {
		r := penaltyRule(c.Penalty)
		return r.Check("fleet.Config")
	}
	return nil
}

func isAnchored(p policy.Policy) bool {
	_, ok := p.(policy.Anchored)
	return ok
}

// lasting returns an error if time, which stands still so long after the epoch, has a year
// left or less.
func lasting(c Config, lasts time.Duration) error {
	const year = 365 * 24 * time.Hour
	if end := c.Epoch.Add(lasts); time.Until(end) < year {
		return &policy.FieldError{Of: "fleet.Config", Field: "Epoch", Value: c.Epoch.Format(time.RFC3339), Want: fmt.Sprintf(
			"a later one, with another Name: the words of a %v last until %s", c.Policy, end.Format(time.DateOnly))}
	}
	return nil
}

// named reports whether s can be part of a key's name, and of what people type.
func named(s string) bool {
	const most = 64
	return s != "" && len(s) <= most && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r == '{' || r == '}' || r == 0x7f
	})
}

// penaltyRule returns the rule of Config.Penalty, the zero one if there is none.
func penaltyRule(p engine.Penalty) (r penalty.Rule) {
	if p != (engine.Penalty{}) {
		r = penalty.Rule{Refusals: int64(p.Refusals), Within: p.Within, For: p.For, Max: p.Max, Forget: p.Forget}
		r.FillIn()
	}
	return r
}
