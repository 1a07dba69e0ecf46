package admin

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ral-limiter/ral/cmd/rald/envoyserver"
	"github.com/ral-limiter/ral/cmd/rald/families"
	"github.com/ral-limiter/ral/observe/ralprom"
)

// engines collects the metrics of package metrics of all engines. It describes nothing in
// advance, as engines come into being while the server runs.
type engines struct {
	of []*families.Families

	mu    sync.Mutex
	known map[families.Family]prometheus.Collector
}

func (*engines) Describe(chan<- *prometheus.Desc) {}

func (e *engines) Collect(to chan<- prometheus.Metric) {
	for _, keep := range e.of {
		for family := range keep.All() {
			e.collector(family).Collect(to)
		}
	}
}

func (e *engines) collector(of families.Family) prometheus.Collector {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.known[of]
	if c == nil {
		if e.known == nil {
			e.known = map[families.Family]prometheus.Collector{}
		}
		c = ralprom.New(of.Metrics())
		e.known[of] = c
	}
	return c
}

// The metrics of the doors.
var (
	descConnections = desc("rald_resp_connections", "Connections of clients of Redis now.")
	descAccepted    = desc("rald_resp_accepted_connections_total", "Connections of clients of Redis that were accepted.")
	descRefused     = desc("rald_resp_refused_connections_total", "Connections that were refused as there were -max-clients of them.")
	descGarbled     = desc("rald_resp_garbled_connections_total", "Connections that ended as what they sent was no command.")
	descCommands    = desc("rald_resp_commands_total", "Commands, by name and by reply; a refusal by a limit is ok.", "command", "result")
	descLimits      = desc("rald_limits", "Limits that are configured by name.")
	descReloads     = desc("rald_reloads_total", "Times that configuration was read, by what was read and how that ended.", "of", "result")
	descFailing     = desc("rald_reload_failing", "1 if the configuration could not be read the last time, and the one before is in force.", "of")
	descRules       = desc("rald_envoy_rules", "Rules of Envoy's rate limit service that are in force.")
	descDescriptors = desc("rald_envoy_descriptors_total", "Descriptors that met a rule, by whether its limit had room.", "rule", "result")
	descCandidates  = desc("rald_envoy_candidate_descriptors_total", "Descriptors that the candidate of a rule would have decided otherwise.", "rule", "result")
	descCheckRules  = desc("rald_check_rules", "Rules of the HTTP check that are in force.")
	descChecks      = desc("rald_check_requests_total", "HTTP checks, by what became of the request; undecided are those whose path or proxy is at fault.", "result")
	descShadowed    = desc("rald_check_shadow_refusals_total", "HTTP checks of requests that passed and that a limit in shadow would have refused.")
)

// doorDescs is what desc has made.
var doorDescs []*prometheus.Desc

func desc(name, help string, labels ...string) *prometheus.Desc {
	d := prometheus.NewDesc(name, help, labels, nil)
	doorDescs = append(doorDescs, d)
	return d
}

// doors collects the metrics of the doors.
type doors struct{ config Config }

func (*doors) Describe(to chan<- *prometheus.Desc) {
	for _, d := range doorDescs {
		to <- d
	}
}

func (d *doors) Collect(to chan<- prometheus.Metric) {
	gauge := func(of *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(of, prometheus.GaugeValue, value, labels...)
	}
	counter := func(of *prometheus.Desc, value uint64, labels ...string) {
		to <- prometheus.MustNewConstMetric(of, prometheus.CounterValue, float64(value), labels...)
	}
	redis := d.config.Redis.Stats()
	gauge(descConnections, float64(redis.Clients))
	counter(descAccepted, redis.Accepted)
	counter(descRefused, redis.Refused)
	counter(descGarbled, redis.Garbled)
	for _, c := range redis.Commands {
		counter(descCommands, c.OK, c.Name, "ok")
		counter(descCommands, c.Errors, c.Name, "error")
	}
	limits := 0
	if d.config.Limits != nil {
		limits = len(d.config.Limits())
	}
	gauge(descLimits, float64(limits))
	for of, read := range d.config.Reloads {
		r := read()
		counter(descReloads, r.Good, of, "good")
		counter(descReloads, r.Bad, of, "bad")
		failing := 0.0
		if r.Failing {
			failing = 1
		}
		gauge(descFailing, failing, of)
	}
	if d.config.Check != nil {
		check := d.config.Check.Stats()
		gauge(descCheckRules, float64(check.Rules))
		counter(descChecks, check.Passed, "passed")
		counter(descChecks, check.Refused, "refused")
		counter(descChecks, check.Unlimited, "unlimited")
		counter(descChecks, check.Undecided, "undecided")
		counter(descShadowed, check.WouldRefuse)
	}
	if d.config.Envoy == nil {
		return
	}
	rules, all := countRules(d.config.Envoy)
	gauge(descRules, float64(rules))
	for rule, n := range all {
		counter(descDescriptors, n.passed, rule, "passed")
		counter(descDescriptors, n.refused, rule, "refused")
		if n.tried {
			counter(descCandidates, n.wouldPass, rule, "would_pass")
			counter(descCandidates, n.wouldRefuse, rule, "would_refuse")
		}
	}
}

const (
	// mostRules is the most values of the label rule, beside otherRules.
	mostRules = 1000
	// longestRule is the most bytes of one.
	longestRule = 200
	// otherRules stands for the rules after the first mostRules, and those with longer paths.
	// The path of a rule has a dot.
	otherRules = "other"
)

type ruleCounts struct {
	tried                                   bool // there is a candidate
	passed, refused, wouldPass, wouldRefuse uint64
}

// countRules returns the number of rules that count, and their counts by path. Rules of one path
// are counted together.
func countRules(of *envoyserver.Service) (rules int, all map[string]*ruleCounts) {
	all = map[string]*ruleCounts{}
	named := 0
	for rule, counts := range of.Counts() {
		rules++
		path := rule.Path
		if all[path] == nil && named == mostRules || len(path) > longestRule {
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
		n.passed += counts.Passed.Load()
		n.refused += counts.Refused.Load()
		n.wouldPass += counts.WouldPass.Load()
		n.wouldRefuse += counts.WouldRefuse.Load()
	}
	return rules, all
}
