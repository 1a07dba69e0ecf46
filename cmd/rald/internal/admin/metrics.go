package admin

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ral-limiter/ral/cmd/rald/internal/envoyserver"
	"github.com/ral-limiter/ral/cmd/rald/internal/families"
	"github.com/ral-limiter/ral/cmd/rald/internal/reservation"
	"github.com/ral-limiter/ral/observe/metrics"
	"github.com/ral-limiter/ral/observe/ralprom"
)

// collector collects the metrics of all engines and doors. It describes none in advance, since engines
// come and go.
type collector struct {
	config Config
	keeps  []*families.Families

	mu    sync.Mutex
	known map[families.Family]prometheus.Collector
}

func (*collector) Describe(chan<- *prometheus.Desc) {}

func (c *collector) Collect(to chan<- prometheus.Metric) {
	for _, keep := range c.keeps {
		for family := range keep.All() {
			c.collectorOf(family).Collect(to)
		}
	}
	c.collectDoors(to)
}

func (c *collector) collectorOf(family families.Family) prometheus.Collector {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known[family] == nil {
		c.known[family] = ralprom.New(family.Metrics())
	}
	return c.known[family]
}

func (c *collector) collectDoors(to chan<- prometheus.Metric) {
	send := func(kind prometheus.ValueType, value float64, name, help string, labels []string) {
		pairs := prometheus.Labels{}
		for ; len(labels) > 0; labels = labels[2:] {
			pairs[labels[0]] = labels[1]
		}
		to <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, nil, pairs), kind, value)
	}
	gauge := func(value float64, name, help string, labels ...string) {
		send(prometheus.GaugeValue, value, name, help, labels)
	}
	counter := func(value uint64, name, help string, labels ...string) {
		send(prometheus.CounterValue, float64(value), name, help, labels)
	}
	results := func(all map[string]uint64, name, help string, labels ...string) {
		for result, n := range all {
			counter(n, name, help, append(labels, "result", result)...)
		}
	}
	redis := c.config.Redis.Stats()
	gauge(float64(redis.Clients), "rald_resp_connections", "Connections of clients of Redis now.")
	counter(redis.Accepted, "rald_resp_accepted_connections_total", "Connections of clients of Redis that were accepted.")
	counter(redis.Refused, "rald_resp_refused_connections_total", "Connections that were refused as there were -max-clients of them.")
	counter(redis.Garbled, "rald_resp_garbled_connections_total", "Connections that ended because they sent no command.")
	for _, command := range redis.Commands {
		results(map[string]uint64{"ok": command.OK, "error": command.Errors},
			"rald_resp_commands_total", "Commands, by name and by reply; a refusal by a limit is ok.", "command", command.Name)
	}
	gauge(float64(redis.Reservations.Held), "rald_reservations", "Reservations that are known.", "state", "held")
	gauge(float64(redis.Reservations.Ended), "rald_reservations", "Reservations that are known.", "state", "ended")
	for state, n := range redis.Reservations.Came {
		counter(n, "rald_reservation_changes_total", "Reservations, by each state that they came into; unknown are charges without one.", "state", reservation.State(state).String())
	}
	counter(redis.Reservations.Forgotten, "rald_forgotten_reservations_total", "Ended reservations that were forgotten early, as there were -reserve-ids of them.")
	counter(redis.Reservations.Full, "rald_refused_reservations_total", "Reservations that were refused, as there were -reserve-ids of them.")
	gauge(float64(c.config.Limits.Len()), "rald_limits", "Limits that are configured by name.")
	for name, use := range c.config.Limits.All() {
		if shares := use.Shares(); shares != nil {
			stats := shares.Counts()
			results(map[string]uint64{"guaranteed": stats.Guaranteed, "borrowed": stats.Borrowed, "refused": stats.Refused},
				"rald_share_calls_total", "Calls of the tenants of a limit with shares.", "limit", name)
		}
		counts, trial := use.Counts()
		if counts == nil {
			continue
		}
		counter(counts.Warnings.Load(), "ral_warnings_total", "Warnings of keys that passed a share of their limit.", "limit", name)
		counter(counts.Passed.Load(), "rald_shadow_passes_total", "Calls that passed in shadow although their limit refused them.", "limit", name)
		if trial != nil {
			ralprom.New(metrics.Trial(name, trial)).Collect(to)
		}
	}
	for part, reads := range c.config.Reloads {
		results(map[string]uint64{"good": reads.Good.Load(), "bad": reads.Bad.Load()},
			"rald_reloads_total", "Reads of the configuration, by its part and result.", "of", part)
		failing := 0.0
		if reads.Fault() != nil {
			failing = 1
		}
		gauge(failing, "rald_reload_failing", "1 if the configuration could not be read the last time, and the one before is in force.", "of", part)
	}
	if c.config.Check != nil {
		check := c.config.Check.Stats()
		gauge(float64(c.config.Check.Rules().Len()), "rald_check_rules", "Rules of the HTTP check that are in force.")
		results(map[string]uint64{
			"passed": check.Passed.Load(), "refused": check.Refused.Load(), "unlimited": check.Unlimited.Load(), "undecided": check.Undecided.Load(),
		}, "rald_check_requests_total", "HTTP checks, by the fate of the request; undecided are those whose path or proxy is at fault.")
		counter(check.WouldRefuse.Load(), "rald_check_shadow_refusals_total", "HTTP checks of requests that passed and that a limit in shadow would have refused.")
	}
	if c.config.Envoy == nil {
		return
	}
	rules, all := countRules(c.config.Envoy)
	gauge(float64(rules), "rald_envoy_rules", "Rules of Envoy's rate limit service that are in force.")
	for rule, n := range all {
		results(map[string]uint64{"passed": n.Passed.Load(), "refused": n.Refused.Load()},
			"rald_envoy_descriptors_total", "Descriptors that met a rule, by whether its limit had room.", "rule", rule)
		counter(n.Returned.Load(), "rald_envoy_returned_hits_total", "Hits that requests gave back to a rule.", "rule", rule)
		if n.tried {
			results(map[string]uint64{"would_pass": n.WouldPass.Load(), "would_refuse": n.WouldRefuse.Load()},
				"rald_envoy_candidate_descriptors_total", "Descriptors that the candidate of a rule would have decided otherwise.", "rule", rule)
		}
	}
}

const (
	// maxRules bounds the values of the label rule, beside otherRules.
	maxRules = 1000
	// maxRulePath bounds the bytes of a value.
	maxRulePath = 200
	// otherRules stands for rules after the first maxRules, and longer paths. Paths have a dot.
	otherRules = "other"
)

type ruleCounts struct {
	envoyserver.Counts
	// tried means that there is a candidate.
	tried bool
}

func countRules(service *envoyserver.Service) (rules int, all map[string]*ruleCounts) {
	all = map[string]*ruleCounts{}
	named := 0
	for rule, counts := range service.Counts() {
		rules++
		path := rule.Path
		if all[path] == nil && named == maxRules || len(path) > maxRulePath {
			path = otherRules
		}
		n := all[path]
		if n == nil {
			n = &ruleCounts{}
			all[path] = n
			if path != otherRules {
				named++
			}
		}
		n.tried = n.tried || rule.Candidate != nil
		n.Add(counts)
	}
	return rules, all
}
