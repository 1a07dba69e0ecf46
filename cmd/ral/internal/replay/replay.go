// Package replay runs limits on the requests of a log, at the log's own time, with the policies that decide in
// production.
//
// Start reading at [Replay.Add]. scenarios.go decides which questions are asked, scenario.go asks
// the limits, recorded.go applies give-backs and changes, gauge.go measures the capacity that keys
// need, ledger.go keeps the keys, state.go reads the keys of a saved engine, and result.go has the
// answers.
package replay

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ral-limiter/ral/cmd/ral/internal/accesslog"
	"github.com/ral-limiter/ral/cmd/ral/internal/traffic"
	"github.com/ral-limiter/ral/internal/core/decide"
	"github.com/ral-limiter/ral/internal/core/penalty"
	"github.com/ral-limiter/ral/policy"
)

const (
	// sample is the number of lines that decide whether stamps are whole seconds.
	sample = 1_000
	// maxAge is 8 years. A log is shorter, since the time of some limits stands still after 9 years.
	maxAge = 8 * 365 * int64(24*time.Hour)
	// maxChanges bounds the different changes of a recorded limit. Later ones are not followed.
	maxChanges = 1 << 10
)

// Replay is a replay under way. It is for one goroutine at a time. Call [New].
type Replay struct {
	ledger

	config Config
	window traffic.Window
	// changes numbers the texts of changes of the recorded limit.
	changes   traffic.Keys
	lines     int64
	hasBroken bool  // a stamp has a fraction of a second
	now       int64 // the latest arrival
	// epoch is the epoch in the first file of a record, or 0. lastEpoch is the epoch in the latest file.
	epoch     int64
	lastEpoch int64
	first     int64 // the first arrival
	// recorded is the text of the recorded limit, or "" while it is unknown.
	recorded  string
	scenarios []*scenario
	totals    Result // of keys that were given up, and of figures without a key
	plans     traffic.Keys
}

// New returns a Replay. An error names the setting at fault.
func New(config Config) (*Replay, error) {
	switch {
	case len(config.Limits)+len(config.Gauges) == 0:
		return nil, errors.New("there is no limit: want --limit 'funnel 100, 10/s' or the like")
	case len(config.Limits) > maxLimits || len(config.Against) > maxLimits:
		return nil, fmt.Errorf("there are %d limits, and %d to compare with: want at most %d", len(config.Limits), len(config.Against), maxLimits)
	case config.MaxKeys < 1:
		return nil, fmt.Errorf("--max-keys is %d, want 1 or more", config.MaxKeys)
	case config.Window < time.Second || config.Window > 24*time.Hour:
		return nil, fmt.Errorf("--window is %v, want 1s to 24h", config.Window)
	}
	replay := &Replay{config: config, window: traffic.Window{Span: config.Window, Max: maxHeld}}
	replay.keys = traffic.Keys{Max: config.MaxKeys + 1, CanGo: replay.canGo}
	replay.plans, replay.changes = traffic.Keys{Max: maxPlans}, traffic.Keys{Max: maxChanges}
	// The first number is none.
	replay.keys.Number(nil)
	replay.keys.Pin(none)
	return replay, nil
}

// Add adds the entry of the next line.
func (r *Replay) Add(entry *accesslog.Entry) {
	switch {
	case entry.Verb == accesslog.Lost:
		r.totals.LostByRecorder += min(entry.Cost, math.MaxInt64-r.totals.LostByRecorder)
		return
	case entry.Verb == accesslog.Start:
		isFirst, isRestart := r.lines == 0, r.lines > 0 && entry.Arrival != r.lastEpoch
		r.lastEpoch = entry.Arrival
		if isFirst {
			r.epoch = entry.Arrival
			r.recorded, _ = strconv.Unquote(string(entry.Key))
		}
		if !isRestart {
			return
		}
		r.totals.Restarts++
	case r.lines == 0:
		r.now = entry.Arrival
	}
	if entry.Arrival-r.now > maxAge {
		r.totals.TooFar++
		return
	}
	r.lines++
	r.window.Advance(entry.Arrival + int64(entry.Duration))
	if r.keys.Len() >= r.keys.Max {
		// Keys can leave once their requests have run, also before the sample is complete.
		r.drain(false)
	}
	request := traffic.Request{
		Arrival: entry.Arrival, Duration: entry.Duration, Cost: entry.Cost, Verb: entry.Verb, Grant: entry.Grant, WasRefused: slices.Contains(r.config.Statuses, entry.Status),
	}
	hasRoom := r.number(entry, &request)
	if hasRoom {
		r.keys.Pin(request.Key)
		r.hasBroken = r.hasBroken || !entry.IsWhole
		r.window.Push(request)
	}
	if r.lines >= sample {
		r.drain(false)
	}
	if !hasRoom && r.scenarios != nil {
		// Keys can leave as time goes on, although no request runs.
		r.now = max(r.now, r.window.Pass())
		for _, scenario := range r.scenarios {
			scenario.settle(&r.ledger, r.now)
		}
	}
}

// none is the number of a key that stands for the lines of a record that have no key.
const none = 0

// number sets the numbers of the key and the plan, or of the change. ok is false if there is no room.
func (r *Replay) number(entry *accesslog.Entry, request *traffic.Request) (ok bool) {
	switch entry.Verb {
	case accesslog.End, accesslog.Release:
		request.Key = none
		return true
	case accesslog.ChangeLimit, accesslog.Start:
		request.Key = none
		if request.Change, ok = r.changes.Number(entry.Key); !ok {
			r.totals.LimitChanges++
		}
		return ok
	}
	plan, ok := r.plans.Number(entry.Plan)
	if !ok {
		r.totals.OtherPlans++
		return false
	}
	name := entry.Key
	if plan > 0 { // a key is another in each plan
		name = append(slices.Clip(entry.Key), 0, byte(plan))
	}
	request.Plan = uint8(plan)
	request.Key, ok = r.keys.Number(name)
	return ok
}

// drain runs the requests that are in order.
func (r *Replay) drain(isEnd bool) {
	for {
		request, ok := r.window.Pop(isEnd)
		if !ok {
			return
		}
		if r.scenarios == nil {
			r.begin(request.Arrival)
		}
		r.now = request.Arrival
		r.run(&request)
		r.keys.Unpin(request.Key)
	}
}

func (r *Replay) begin(first int64) {
	r.zero, r.first = first, first
	if age := first - r.epoch; age >= 0 && age <= maxAge {
		r.zero = r.epoch
	}
	r.scenarios = scenariosFor(r.config, !r.hasBroken, time.Unix(0, r.zero))
	for _, scenario := range r.scenarios {
		scenario.first = r.stride
		r.stride += len(scenario.limits)
	}
	r.columns = len(r.scenarios)
	r.load(first)
}

// run asks all scenarios about a request, and compares the answers.
func (r *Replay) run(request *traffic.Request) {
	r.grow()
	account := &r.accounts[request.Key]
	if request.Verb > accesslog.Take {
		r.change(request)
		return
	}
	account.requests++
	account.plan = request.Plan
	before := request.WasRefused
	if request.WasRefused {
		account.wasRefused++
		r.totals.WasRefused++
	}
	if request.Arrival < account.blockedUntil {
		r.totals.Blocked++
	}
	allowed := true
	for i, scenario := range r.scenarios {
		if scenario.isSpread {
			scenario.settle(&r.ledger, request.Arrival)
			scenario.keep(&r.ledger, request)
			continue
		}
		ok := scenario.ask(&r.ledger, event{Request: *request}, request.Arrival)
		switch {
		case i == 0:
			allowed = ok
		case scenario.totals.Name == ComparedWith:
			before = !ok
		}
	}
	if !allowed && request.WasRefused {
		r.totals.Both++
	}
	switch {
	case !allowed && !before:
		account.newly++
		r.totals.Newly.Requests++
	case allowed && before:
		account.lifted++
		r.totals.Lifted.Requests++
	}
	r.totals.Requests++
	r.totals.Units += request.Cost
	r.totals.Chart.add(request.Arrival, !allowed, request.WasRefused)
}

// change applies a line of a record that takes nothing.
func (r *Replay) change(request *traffic.Request) {
	key, returned, account := request.Key, int64(0), &r.accounts[request.Key]
	for _, scenario := range r.scenarios {
		scenario.settle(&r.ledger, request.Arrival)
	}
	switch request.Verb {
	case accesslog.ChangeLimit, accesslog.Start:
		r.changeLimit(request)
	case accesslog.Reset:
		account.blockedUntil = 0
		account.resets++
	case accesslog.Block:
		if account.blockedUntil = max(account.blockedUntil, request.Arrival+min(request.Cost, math.MaxInt64-request.Arrival)); request.Cost == 0 {
			account.blockedUntil = 0
		}
	}
	for _, scenario := range r.scenarios {
		words := scenario.words(&r.ledger, request.Key)
		switch request.Verb {
		case accesslog.End, accesslog.Release:
			if owner, units := scenario.end(&r.ledger, request); units > 0 {
				key, returned = owner, units
			}
		case accesslog.Reset:
			clear(words) // account.resets keeps the grants of before from giving back
		case accesslog.Refund, accesslog.Charge:
			units := request.Cost
			if returned = units; request.Verb == accesslog.Charge {
				units, returned = -units, 0
			}
			for i, limit := range scenario.limits {
				refunder, _ := limit.(policy.Refunder)
				words[i] = decide.Refund(limit, refunder, words[i], r.instant(request.Arrival), units, &policy.Decision{})
			}
		}
	}
	r.accounts[key].returned += returned
}

// changeLimit changes the limits that the recorded limit was before. The line's key has the texts before and after or, of a
// start, the text after.
func (r *Replay) changeLimit(request *traffic.Request) {
	text, _ := strconv.Unquote(r.changes.Name(request.Change))
	before, after, _ := strings.Cut(text, " -> ")
	if request.Verb == accesslog.Start {
		before, after = r.recorded, text
		if before == "" || after == "" || before == after {
			return
		}
	}
	r.recorded = after
	r.totals.LimitChanges++
	limit, err := policy.Parse(after)
	if err != nil {
		return
	}
	limit = decide.Anchor(limit, time.Unix(0, r.zero))
	for i, scenario := range r.scenarios {
		if scenario.follow(&r.ledger, before, limit, r.instant(request.Arrival)) && i == 0 {
			r.totals.Followed++
		}
	}
}

// canGo forgets a key that owes nothing under any limit, so that no answer changes.
func (r *Replay) canGo(key uint32) bool {
	if int(key) >= len(r.accounts) || r.accounts[key].blockedUntil > r.now {
		return false
	}
	for _, scenario := range r.scenarios {
		words := scenario.words(&r.ledger, key)
		for i, limit := range scenario.limits {
			if limit.FreshAt(words[i]) > r.instant(r.now) {
				return false
			}
		}
	}
	r.close(key)
	for _, scenario := range r.scenarios {
		clear(scenario.words(&r.ledger, key))
	}
	return true
}

// close adds a key's account to the totals, and empties it.
func (r *Replay) close(key uint32) {
	t, a, counts := &r.totals, &r.accounts[key], r.countsOf(key)
	count := func(n *int64, counts bool) {
		if counts {
			*n++
		}
	}
	count(&t.Keys, a.requests > 0)
	count(&t.LoadedMet, a.isLoaded && a.requests > 0)
	count(&t.WasRefusedKeys, a.wasRefused > 0)
	count(&t.Newly.Keys, a.newly > 0)
	count(&t.Lifted.Keys, a.lifted > 0)
	if refused := counts[0]; refused > 0 {
		t.Top = append(t.Top, Key{r.keys.Name(key), a.requests, refused, a.wasRefused})
		if len(t.Top) > 100*maxTop {
			t.Top = topKeys(t.Top)
		}
	}
	for i, scenario := range r.scenarios {
		if scenario.isGauge && a.requests > 0 {
			scenario.needs.add(Need{a.plan, counts[i]})
		}
		count(&scenario.totals.RefusedKeys, counts[i] > 0)
	}
	*a = account{}
	clear(counts)
}

// Result ends the replay. Later calls of Add are without meaning.
func (r *Replay) Result() *Result {
	r.drain(true)
	t := &r.totals
	for _, scenario := range r.scenarios {
		scenario.settle(&r.ledger, math.MaxInt64)
	}
	for key := range r.keys.All {
		if int(key) < len(r.accounts) {
			r.close(key)
		}
	}
	t.Top = topKeys(t.Top)
	for _, scenario := range r.scenarios {
		if scenario.isGauge {
			t.Needs = append(t.Needs, scenario.needs)
		} else {
			t.Scenarios = append(t.Scenarios, scenario.totals)
		}
	}
	for plan := range r.plans.Size() {
		t.Plans = append(t.Plans, r.plans.Name(uint32(plan)))
	}
	t.From, t.To = time.Unix(0, r.first).UTC(), time.Unix(0, r.now).UTC()
	t.AreWhole = !r.hasBroken
	t.Late, t.Crowded = r.window.Late, r.window.Crowded
	t.Unknown, t.Forgotten = r.keys.Unknown, r.keys.Forgotten
	return t
}

// load begins with the keys of a state, under each limit that made their words.
func (r *Replay) load(first int64) {
	for _, state := range r.config.States {
		key, ok := r.keys.Number([]byte(state.key))
		if !ok {
			continue
		}
		r.grow()
		account, begins := &r.accounts[key], false
		if state.limit == penalty.Text {
			if _, decision := (&penalty.Rule{}).Take(state.word, r.instant(first), 1, 0); decision.RetryAfter > 0 {
				account.blockedUntil, begins = first+int64(decision.RetryAfter), true
			}
		}
		for _, scenario := range r.scenarios {
			for i, limit := range scenario.limits {
				if !scenario.isGauge && limit.String() == state.limit {
					scenario.words(&r.ledger, key)[i], begins = min(state.word, policy.MaxWord), true
				}
			}
		}
		if begins && !account.isLoaded {
			account.isLoaded = true
			r.totals.Loaded++
		}
	}
}
