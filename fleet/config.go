package fleet

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/internal/core/penalty"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/internal/core/warn"
	"github.com/ral-limiter/ral/observe/eventlog"
	"github.com/ral-limiter/ral/policy"
)

const (
	defaultBudget          = 5 * time.Millisecond
	defaultMaxKeys         = 1 << 20
	defaultMaxWaiting      = 1024
	defaultMaxWaitingTotal = 1 << 16
)

const maxBudget = time.Minute

// Mode selects where calls are decided.
type Mode uint8

const (
	// Exact: a script in Redis decides each call.
	Exact Mode = iota
	// Leased: each server decides by itself, on units taken from Redis ahead of need, for at most
	// Config.Term. Leased units are paid in advance, so the fleet never admits more than the limit,
	// whatever dies or is late. A dead server's units in a window are lost until the window ends.
	// Under a Funnel a dead server's units have drained after a term, and its capacity is smaller
	// by a term's drain. RetryAfter is when this server asks Redis again, and no promise: the first
	// to ask has the units. A key with fewer than 8 calls a term is decided as in Exact mode, so no
	// key costs Redis more commands than there.
	Leased
)

// Fallback selects how calls are answered while Redis does not answer.
type Fallback uint8

const (
	// FallbackShare: each server keeps a share in memory, the limit divided by the number of
	// servers: see Config.Servers. A key's share begins with the part used as Redis last told this
	// server. So an outage that all servers see at once is no second burst. Redis and the shares
	// together admit the limit once, plus other servers' takes of a key after this server last
	// asked about it.
	//
	// A key that this server has not asked about for as long as a full key takes to drain is
	// unknown. Its share begins used up at the time when Redis was last heard, and comes back
	// evenly over that time. One call of at most the share passes all the same; dearer calls are
	// refused. With Config.FullShares the share begins unused instead. Neither holds if this server
	// has not reached Redis since it started, or forgot a key that owed for want of room (see
	// Config.MaxKeys): an unknown key's share then begins used up.
	//
	// When Redis is back, Redis is charged for units that a share let pass and that still count;
	// they go on counting here. Until then Redis admits as if these units were free, so an outage
	// adds at most one capacity.
	//
	// Under a limit in flight the share is the limit divided by the number of servers, rounded down, less
	// the units that this server has, lost or not. Redis counts its units once it is back.
	//
	// Calls without Redis keep to the limit by themselves, over all outages and late answers, while
	// servers run on and know their number. A server that ends forgets uncharged units, unless
	// Config.StateFile keeps them. Without it, a fleet that is restarted in every outage admits up
	// to the limit by shares in each. If only some servers lose Redis, their shares come on top of
	// Redis's units.
	FallbackShare Fallback = iota
	// FallbackOpen: every call for no more than the limit passes. Nothing is recorded.
	FallbackOpen
	// FallbackClosed: every call is refused.
	FallbackClosed
)

// Config configures a limiter. Name, Policy, and either Client, Redis or Via are required. Other
// fields have defaults for zero; negative values are refused. All servers of a fleet must have the
// same Name, Tag, Policy, Mode, Term and Epoch.
type Config struct {
	// Client is the caller's client, which Close leaves open. Redis, below, names the settings that
	// suit it. If Redis ends the client's connections, Health has the client's error, often only
	// EOF, not Redis's reply to a new connection. A Redis that replaces another is checked for
	// eviction when the breaker closes, or within five seconds if it did not open.
	Client rueidis.Client
	// Redis is where to connect, in place of Client: a server, a cluster or sentinels. Its InitAddress
	// has addresses such as "localhost:6379", not URLs, unless it has a function that dials. The limiter
	// connects in the background and retries. New sets DisableCache, and AlwaysPipelining unless
	// DisableAutoPipelining is set. Zero timeouts, Dialer.Timeout and ConnWriteTimeout, become a
	// second. PipelineMultiplex defaults to one connection, its buffers to 64 KiB.
	//
	// Limiters of this process with equal options share a client, so that TakeAll can take from keys
	// of both. Options are equal if no function is set, and all other fields are equal, with the same
	// pointers. The last of the limiters closes the client.
	Redis rueidis.ClientOption

	// RequireRedis makes New fail with ErrOutage if no Redis that suits limits answers within a
	// second. By default the limiter starts without Redis, tells OnEvent, and goes on connecting.
	RequireRedis bool

	// Via, in place of Client and Redis, is a limiter whose client this limiter uses, so that
	// TakeAll can take from keys of both. The last of the limiters closes the client.
	Via *Limiter

	// Name names the limit and is part of its keys' names in Redis: 1 to 64 bytes without braces,
	// spaces and control characters.
	Name string
	// Tag, if not empty, keeps the keys of all limits of this Tag on one node of a cluster, so that
	// TakeAll can take from them together. It has the form of a Name. Servers with another Tag
	// under the same Name are another fleet, which Stats.Servers and ErrLimits do not notice.
	Tag string

	// Policy is the limit of each key: a Funnel, FixedWindow, SlidingWindow, Bursty, Queue or
	// AlignedWindow of package policy, an InFlight of at most 10,000 units, or a SlidingLog. Leased
	// mode takes the first three. New refuses others, such as a CalendarWindow. An AlignedWindow has at most 2^52 units, in whole
	// microseconds. Its windows begin by Redis's clock, and by this server's while Redis is away.
	Policy policy.Policy

	// PolicyFor, if not nil, returns the limit of a key, which may change at any time; nil is
	// Policy. Limits must be of Policy's family, as for Limiter.TakeWith. PolicyFor and TakeWith
	// together may use 1,024 limits of different text; further limits get ErrTooManyLimits. All
	// servers must choose alike. PolicyFor runs on each call's goroutine. It must be fast and safe
	// for concurrent use, and should return policies made beforehand. SetPolicy is then refused.
	// Leased mode refuses PolicyFor.
	PolicyFor func(key string) policy.Policy

	// Penalty blocks keys that go on calling although refused; the zero value blocks none. Its
	// times are rounded up to microseconds. Redis counts refusals of all servers in the step that
	// decides a call, so exactly Penalty.Refusals block. Refusals by the key's limit count, once in
	// a TakeAll. Refusals without Redis, by a block or with policy.Never do not. All servers should
	// have the same. Leased mode has none: its servers refuse by themselves. Limiter.Block works in
	// both.
	Penalty engine.Penalty

	// Mode is Exact by default.
	Mode Mode
	// Term bounds a lease in Leased mode: 10 ms to a minute, less if half of a Funnel drains, or a
	// window ends, sooner. The default is ten round trips to Redis, between 250 ms and a second.
	// For a Funnel it is at most an eighth of its drain time, though at least 50 ms. A Funnel keeps
	// back as much of its capacity as drains in the longest term: by default a second's worth, or
	// an eighth of its capacity if less. Of 1,000 units at 1,000 a second a burst has 875, as
	// Answer.Limit says.
	//
	// Under a limit in flight, Term is how long Redis counts a unit that its server does not confirm:
	// 100 ms to a minute, 10 s by default. The server confirms all its units five times a term. After
	// 0.9 terms without an answer the server gives its units up: see Reservation.Lost. So a dead server's
	// units are free after a term. The tenth that is left covers clocks that differ in speed, and the
	// time in which a call ends.
	//
	// All servers must have the same Term.
	Term time.Duration

	// Budget bounds a call's wait for Redis, up to a minute; 5 ms by default. Then Outage answers.
	// The budget includes delays in this server, such as a want of processor time.
	Budget time.Duration
	// Outage is FallbackShare by default.
	Outage Fallback
	// Servers is the least number by which FallbackShare divides the limit. Set it to the number of
	// servers that normally run. If that number changes, set Servers to the lowest or the highest. With
	// the lowest, servers that all start without Redis may together exceed the limit; with the highest,
	// an outage admits less. Servers that reach Redis are counted,
	// and a higher count divides at once. A server that left is forgotten after a minute, a dead
	// server after two, not counting time without Redis. With 0, the default, the count alone
	// divides: a server then refuses until it first reaches Redis, and Answer.Err and Health are
	// ErrUncounted.
	Servers int
	// FullShares has an unknown key begin an outage with its whole share, so that new clients are
	// not refused. A key that other servers have asked Redis about is unknown, too: by Redis and
	// shares together it may get twice its limit. Without FullShares it gets at most one call of
	// each server beyond its limit. See FallbackShare.
	FullShares bool
	// MaxKeys bounds the keys in memory, apart for blocks, for leases (see engine.Config), for
	// shares, and for keys that Redis told of. The default is 1<<20. A key costs about 50 bytes. A
	// key with a share costs about 110 and, while units are to be charged, up to 130 more. Its
	// length does not matter. Each limit that comes with calls may add as many keys.
	MaxKeys int

	// MaxWaiting bounds calls of Wait and Acquire for a key on this server; 1024 by default. A call
	// counts from when it asks, so the bound is never exceeded. Further calls ask without patience,
	// and get engine.ErrCrowded if they would wait. Calls of Reserve do not count.
	MaxWaiting int
	// MaxWaitingTotal bounds the calls for all keys together. The default is 65536.
	MaxWaitingTotal int

	// StateFile, if not empty, is the path of a file that keeps uncharged units of FallbackShare
	// over restarts. New reads it. The file is written within about a second of a change, and by
	// Close, with mode 0600: it holds keys. A second limiter gets ErrStateFile. A file that New
	// cannot read is an error, and is left as it is.
	//
	// A Close loses nothing and charges nothing twice. A killed server loses at most the units let
	// pass since the last save, and charges again at most those charged since. Saved keys go on
	// with the rest of their shares. The wall clock tells how many units came back meanwhile; none
	// if it went back. If the limit was changed, units count from the start of the server. A key
	// that owes nothing is not saved, and begins as unknown. Units under limits other than Policy
	// are not kept. An AlignedWindow has no StateFile.
	//
	// A file beside it, with ".id" appended to the name, keeps this server's identity, so that the
	// successor of a killed server does not count beside it. That file must not be copied to
	// another server: both would count as one server, and their shares would exceed the limit.
	StateFile string

	// Epoch is the origin of Redis's time, in whole seconds; 2026-01-01 UTC by default. Limits in
	// windows last 9 years from there, others 17. Another epoch needs another Name, since it gives
	// all keys' words another meaning.
	Epoch time.Time

	// WarnAt has the shares of a key's limit, such as 0.8 and 0.95, at which a key is warned of: see
	// OnWarn, LatestWarnings and Stats.Warnings. Each is above 0 and below 1 and above the one before;
	// at most 8. The default warns of none, at no cost. OnEvent receives each warning as SharePassed,
	// with the key's hash.
	//
	// A call passes a share as described at engine.OnWarn, and a key is warned of as often. Which call
	// passes depends on the answer's source:
	//
	//   - Redis: one call of the fleet passes, and its server warns. Each server remembers only its own
	//     warnings. So a key that passes the share again within the period may be warned of by another
	//     server, too. A call that waits warns once its turn is promised. An answer of Redis later than
	//     Budget warns of none.
	//   - A lease: leasing the units is the take. So a key is warned of up to a lease before calls use the
	//     share, and when units of it are given back later it was warned of early. Calls that a lease
	//     decides never warn and cost nothing more. Decision has the units that Redis has left, of the
	//     limit less what a Funnel keeps back: see Term.
	//   - FallbackShare: a key passes a share of this server's part of the limit, so several servers may
	//     warn of it. A key whose share begins used up may be warned of at its first call. A charge warns
	//     of none.
	//   - FallbackOpen and FallbackClosed warn of none.
	//
	// A server forgets its warnings when it ends, and when SetPolicy or a deploy of another server
	// changes the limit that it keeps to.
	WarnAt []float64
	// OnWarn receives each warning of this server, on a goroutine of its own. WarnAt must be set. As
	// described at engine.OnWarn, warnings may be lost behind a slow hook (engine.Warning.Missed), a
	// panic ends that call only and is the event HookFailed, and the hook must not call Close.
	OnWarn func(engine.Warning[string])

	// OnEvent is told of outages and other events for a log; nil is LogEvents to slog.Default. One
	// goroutine calls it and does nothing else meanwhile. OnEvent must not call Close, which waits
	// for that goroutine.
	OnEvent func(Event)

	// clock is in place of Redis's, for tests: see store.Options.
	clock func() int64
	// fake is in place of Redis, for tests. The origin's counts.
	fake func(store.Options) decider
	// also returns more on which servers must agree, and onAgreed is called after each beat that
	// finds that all servers agree, with the text on which they agree. Both may be nil.
	also     func() string
	onAgreed func(text string)
}

const (
	// defaultInFlightTerm, minInFlightTerm and maxInFlightTerm bound Config.Term of a limit in flight.
	defaultInFlightTerm = 10 * time.Second
	minInFlightTerm     = 100 * time.Millisecond
	maxInFlightTerm     = time.Minute
)

// isInFlight reports whether units of the policy are in use until a release.
func isInFlight(limit policy.Policy) bool {
	_, ok := store.InFlightFor(limit)
	return ok
}

func (c Config) withDefaults() Config {
	c.Budget = cmp.Or(c.Budget, defaultBudget)
	c.MaxKeys = cmp.Or(c.MaxKeys, defaultMaxKeys)
	c.MaxWaiting = cmp.Or(c.MaxWaiting, defaultMaxWaiting)
	c.MaxWaitingTotal = cmp.Or(c.MaxWaitingTotal, defaultMaxWaitingTotal)
	c.WarnAt = slices.Clone(c.WarnAt)
	if rule := penaltyRule(c.Penalty); rule.Counts() {
		c.Penalty.Max, c.Penalty.Forget = rule.Max, rule.Forget
	}
	if c.Epoch.IsZero() {
		c.Epoch = store.DefaultEpoch
	}
	if c.OnEvent == nil {
		c.OnEvent = LogEvents(c.Name, eventlog.New(nil))
	}
	if isInFlight(c.Policy) {
		c.Term = cmp.Or(c.Term, defaultInFlightTerm)
	}
	if c.Client == nil && c.Via == nil {
		c.Redis = forLimits(c.Redis)
	}
	return c
}

// anchored returns a policy bound to the wall clock with its windows counted from the epoch.
func (c Config) anchored(limit policy.Policy) policy.Policy {
	if anchored, ok := limit.(policy.Anchored); ok && !shape.IsNil(limit) {
		return anchored.Anchor(c.Epoch)
	}
	return limit
}

// forLimits fills in settings for a limiter. One connection makes the largest batches, and with
// pipelining a late answer does not cost the connection.
func forLimits(clientOption rueidis.ClientOption) rueidis.ClientOption {
	const (
		patience = time.Second
		buffer   = 64 << 10
	)
	clientOption.AlwaysPipelining = !clientOption.DisableAutoPipelining
	clientOption.DisableCache = true
	clientOption.Dialer.Timeout = cmp.Or(clientOption.Dialer.Timeout, patience)
	clientOption.ConnWriteTimeout = cmp.Or(clientOption.ConnWriteTimeout, patience)
	clientOption.PipelineMultiplex = cmp.Or(clientOption.PipelineMultiplex, -1)
	clientOption.ReadBufferEachConn = cmp.Or(clientOption.ReadBufferEachConn, buffer)
	clientOption.WriteBufferEachConn = cmp.Or(clientOption.WriteBufferEachConn, buffer)
	return clientOption
}

func (c Config) connected() bool {
	return len(c.Redis.InitAddress) > 0 || c.fake != nil
}

// validate returns a *policy.FieldError for the first bad field. New checks the policy.
func (c Config) validate() error {
	_, anchored := c.Policy.(policy.Anchored)
	for _, fault := range []struct {
		is    bool
		field string
		value any
		want  string
	}{
		{c.Via != nil && (c.Client != nil || c.connected()), "Via", "a limiter", "one of Client, Redis and Via"},
		{c.Via == nil && c.Client == nil && !c.connected(), "Redis", "empty", "a Client, or Redis with an InitAddress"},
		{c.Client != nil && c.connected(), "Redis", c.Redis.InitAddress, "either Client or Redis, not both"},
		{!named(c.Name), "Name", fmt.Sprintf("%q", c.Name), "1 to 64 bytes without braces, spaces and control characters"},
		{c.Tag != "" && !named(c.Tag), "Tag", fmt.Sprintf("%q", c.Tag), "up to 64 bytes without braces, spaces and control characters"},
		{shape.IsNil(c.Policy), "Policy", "nil", "a policy, such as policy.Funnel returns"},
		{c.PolicyFor != nil && c.Mode == Leased, "PolicyFor", "a function", "none in Leased mode: leases have one limit"},
		{c.Penalty != (engine.Penalty{}) && c.Mode == Leased, "Penalty", fmt.Sprintf("%+v", c.Penalty), "none in Leased mode, where servers refuse calls by themselves"},
		{c.Mode > Leased, "Mode", int(c.Mode), "Exact or Leased"},
		{isInFlight(c.Policy) && (c.Term < minInFlightTerm || c.Term > maxInFlightTerm), "Term", c.Term, "between 100ms and 1m for a limit in flight, or 0 for 10s"},
		{isInFlight(c.Policy) && c.Mode == Leased, "Mode", "Leased", "Exact: units in flight cannot be leased"},
		{isInFlight(c.Policy) && c.StateFile != "", "StateFile", fmt.Sprintf("%q", c.StateFile), "none with a limit in flight: its units end with their server"},
		{c.Term < 0, "Term", c.Term, "a positive duration, or 0 for the default"},
		{c.Budget < 0 || c.Budget > maxBudget, "Budget", c.Budget, "a positive duration of up to a minute, or 0 for 5ms"},
		{c.Outage > FallbackClosed, "Outage", int(c.Outage), "FallbackShare, FallbackOpen or FallbackClosed"},
		{c.StateFile != "" && c.Outage != FallbackShare, "StateFile", fmt.Sprintf("%q", c.StateFile), "none, unless Outage is FallbackShare: nothing else is charged later"},
		{c.StateFile != "" && anchored, "StateFile", fmt.Sprintf("%q", c.StateFile), "none with an AlignedWindow: the window of the units that a share let pass is not known afterwards"},
		{c.Servers < 0, "Servers", c.Servers, "how many servers share the limit, or 0 to count them"},
		{c.MaxKeys < 0, "MaxKeys", c.MaxKeys, "1 or more, or 0 for 1048576"},
		{c.MaxWaiting < 0, "MaxWaiting", c.MaxWaiting, "1 or more, or 0 for 1024"},
		{c.MaxWaitingTotal < 0, "MaxWaitingTotal", c.MaxWaitingTotal, "1 or more, or 0 for 65536"},
		{c.OnWarn != nil && len(c.WarnAt) == 0, "WarnAt", "empty", "shares such as 0.8 and 0.95, for OnWarn"},
		{c.Epoch.After(time.Now()), "Epoch", c.Epoch.Format(time.RFC3339), "a time that has passed"},
		{c.Epoch.Before(time.Unix(0, 0)), "Epoch", c.Epoch.Format(time.RFC3339), "1970 or later"},
	} {
		if fault.is {
			return &policy.FieldError{Of: "fleet.Config", Field: fault.field, Value: fault.value, Want: fault.want}
		}
	}
	if err := checkAddresses(c.Redis); err != nil {
		return err
	}
	if c.Penalty != (engine.Penalty{}) {
		rule := penaltyRule(c.Penalty)
		if err := rule.Check("fleet.Config"); err != nil {
			return err
		}
	}
	return warn.Shares(c.WarnAt).Check("fleet.Config", "WarnAt")
}

// checkAddresses returns a *policy.FieldError for an address that no dialer of package net takes. A
// function that dials may take others. The error leaves out what precedes an @, since a URL may have
// a password there.
func checkAddresses(clientOption rueidis.ClientOption) error {
	if clientOption.DialFn != nil || clientOption.DialCtxFn != nil {
		return nil
	}
	for i, address := range clientOption.InitAddress {
		host, port, err := net.SplitHostPort(address)
		isName := err == nil && !strings.ContainsAny(host, " \t\r\n/@")
		if number, unknown := net.LookupPort("tcp", port); isName && unknown == nil && number > 0 {
			continue
		}
		if sign := strings.LastIndexByte(address, '@'); sign >= 0 {
			address = "..." + address[sign:]
		}
		return &policy.FieldError{
			Of: "fleet.Config", Field: fmt.Sprintf("Redis.InitAddress[%d]", i), Value: fmt.Sprintf("%.80q", address),
			Want: "host:port, such as localhost:6379; rueidis.ParseURL makes the options of a URL",
		}
	}
	return nil
}

// lasting returns an error if time, which stops that long after the epoch, has at most a year left.
func lasting(config Config, lasts time.Duration) error {
	const year = 365 * 24 * time.Hour
	if end := config.Epoch.Add(lasts); time.Until(end) < year {
		return &policy.FieldError{Of: "fleet.Config", Field: "Epoch", Value: config.Epoch.Format(time.RFC3339), Want: fmt.Sprintf(
			"a later one, with another Name: the words of a %v last until %s", config.Policy, end.Format(time.DateOnly))}
	}
	return nil
}

// named reports whether s can be part of a key's name.
func named(s string) bool {
	const maxLength = 64
	return s != "" && len(s) <= maxLength && !strings.ContainsFunc(s, func(char rune) bool {
		return char <= ' ' || char == '{' || char == '}' || char == 0x7f
	})
}

func penaltyRule(p engine.Penalty) (rule penalty.Rule) {
	if p != (engine.Penalty{}) {
		rule = penalty.Rule{Refusals: int64(p.Refusals), Within: p.Within, For: p.For, Max: p.Max, Forget: p.Forget}
		rule.FillIn()
	}
	return rule
}
