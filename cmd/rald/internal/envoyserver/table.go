package envoyserver

import (
	"math"
	"sync"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/ral-limiter/ral/cmd/rald/internal/configfile"
	"github.com/ral-limiter/ral/cmd/rald/internal/families"
	"github.com/ral-limiter/ral/cmd/rald/internal/rules"
	"github.com/ral-limiter/ral/policy"
)

// table is a constant configuration with the engines of its limits.
type table struct {
	set *rules.Set
	// waits is for the first rules.
	waits bool
	// quota is for every rule.
	quota   bool
	held    map[*rules.Rule]*held
	windows map[rules.Unit]*window
	// families are the families of all limits.
	families []families.Family
	// calls is held for reading by each request that the table decides.
	calls sync.RWMutex
}

// held is a rule, or an override from a request, with its engines.
type held struct {
	*rules.Rule
	// quota is the rule's own, or for all rules.
	quota bool
	// shown is the limit as it is told to clients.
	shown *pb.RateLimitResponse_RateLimit
	// window is nil if the rule has a limit of package policy.
	window *window

	// exact is the limit that counts no refused hits: the rule's own, or its requests in its unit.
	// It is nil if all is refused. family keeps it.
	exact  policy.Policy
	family families.Family
	// next admits one request more in its unit.
	next policy.Policy

	// more are for the rule's further limits.
	more []*held
	// candidate is nil if there is none.
	candidate families.Family
	// counts is nil for an override.
	counts *Counts
}

// build returns the table of a set without its engines, and the limits that need engines with the
// places for them.
func build(set *rules.Set, quota bool) (t *table, needs []families.Need, engines []*families.Family) {
	need := func(limit policy.Policy, at configfile.Place, engine *families.Family) {
		needs, engines = append(needs, families.Need{Limit: limit, At: at}), append(engines, engine)
	}
	t = &table{set: set, quota: quota, held: map[*rules.Rule]*held{}, windows: map[rules.Unit]*window{}}
	for _, unit := range rules.Units {
		w := newWindow(unit)
		t.windows[unit] = w
		need(w.limit, configfile.Place{}, &w.family)
	}
	for _, rule := range set.Rules() {
		h := &held{Rule: rule}
		t.held[rule] = h
		if rule.Unlimited {
			continue
		}
		place := configfile.Place{File: rule.File, Line: rule.Line, Key: rule.Path}
		h.quota, h.exact = rule.Quota || quota, rule.Limit
		if rule.Limit != nil {
			h.shown = describe(rule)
			need(rule.Limit, place, &h.family)
		}
		for _, limit := range rule.More {
			of := *rule
			of.Limit = limit
			more := &held{Rule: &of, quota: h.quota, exact: limit, shown: describe(&of)}
			h.more = append(h.more, more)
			need(limit, place, &more.family)
		}
		if rule.Candidate != nil {
			need(rule.Candidate, place, &h.candidate)
		}
	}
	return t, needs, engines
}

// newTable returns the table of a set. Rules take the counts of their path out of the map.
func newTable(set *rules.Set, config Config, counts map[string]*Counts) (*table, error) {
	table, needs, engines := build(set, config.Quota)
	kept, err := config.Families.Keep(needs...)
	if err != nil {
		return nil, err
	}
	for i, engine := range engines {
		*engine = kept[i]
	}
	for _, rule := range set.Rules() {
		held := table.held[rule]
		if rule.Unlimited {
			continue
		}
		if rule.Limit == nil {
			held.fixed(table.windows[rule.Unit])
		}
		if held.counts = counts[rule.Path]; held.counts == nil {
			held.counts = new(Counts)
		}
		delete(counts, rule.Path)
	}
	table.families = kept
	return table, nil
}

// Room returns nil if Families of that configuration have room for the limits of a set. The error
// joins a *configfile.Error for each rule without room, as for Prepare.
func Room(in families.Config, set *rules.Set) error {
	_, needs, _ := build(set, false)
	return in.Room(needs...)
}

func (h *held) fixed(window *window) {
	h.window, h.family = window, window.family
	unit := pb.RateLimitResponse_RateLimit_Unit_value[h.Unit.String()]
	h.shown = &pb.RateLimitResponse_RateLimit{
		Name: h.Name, RequestsPerUnit: h.Requests, Unit: pb.RateLimitResponse_RateLimit_Unit(unit),
	}
	if h.Requests > 0 {
		h.exact = window.policyFor(int64(h.Requests), h.Unit)
	}
	h.next = window.policyFor(int64(h.Requests)+1, h.Unit)
}

// override returns the limit that came with a request, with a known unit.
func (t *table) override(requests uint32, unit rules.Unit) *held {
	h := &held{Rule: &rules.Rule{Requests: requests, Unit: unit}, quota: t.quota}
	h.fixed(t.windows[unit])
	return h
}

// describe returns a limit of package policy for clients, with the unit of its window or UNKNOWN.
func describe(rule *rules.Rule) *pb.RateLimitResponse_RateLimit {
	shown := &pb.RateLimitResponse_RateLimit{Name: rule.Name, RequestsPerUnit: clip(rule.Limit.Limit())}
	if w, ok := rule.Limit.(policy.Windowed); ok {
		for _, unit := range rules.Units {
			if unit.Length() == w.Window() {
				shown.Unit = pb.RateLimitResponse_RateLimit_Unit(pb.RateLimitResponse_RateLimit_Unit_value[unit.String()])
			}
		}
	}
	return shown
}

func clip(n int64) uint32 { return uint32(min(max(n, 0), math.MaxUint32)) }

// Bounds of a window's hits: a word's room for a second, otherwise more than any rule allows.
const (
	maxInSecond = 1<<29 - 1
	maxInOther  = 1<<34 - 1
)

// window counts the hits of the rules of requests per unit. Each rule counts under its own limit, and
// all of a unit are of one family: a rule with a changed number keeps its counts.
type window struct {
	max int64
	// limit is the limit of max hits.
	limit  policy.Policy
	family families.Family
}

func newWindow(unit rules.Unit) *window {
	w := &window{max: maxInOther}
	if unit == rules.Second {
		w.max = maxInSecond
	}
	w.limit = w.policyFor(w.max, unit)
	return w
}

func (w *window) policyFor(hits int64, unit rules.Unit) policy.Policy {
	return policy.Must(policy.AlignedWindow(min(hits, w.max), unit.Length()))
}
