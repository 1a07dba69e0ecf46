package rules

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v2"

	"github.com/ral-limiter/ral/cmd/rald/internal/configfile"
	"github.com/ral-limiter/ral/cmd/rald/internal/fault"
	"github.com/ral-limiter/ral/policy"
)

// file is the content of a file. The types of its fields decide what is accepted, as they do in
// the reference: requests_per_unit is no text, but a value may be a number.
type file struct {
	Domain       string
	Descriptors  []descriptor
	AllOrNothing bool `yaml:"all_or_nothing"`
}

type descriptor struct {
	Key            string
	Value          string
	RateLimit      *rateLimit `yaml:"rate_limit"`
	Descriptors    []descriptor
	ShadowMode     bool `yaml:"shadow_mode"`
	QuotaMode      bool `yaml:"quota_mode"`
	DetailedMetric bool `yaml:"detailed_metric"`
	ValueToMetric  bool `yaml:"value_to_metric"`
	ShareThreshold bool `yaml:"share_threshold"`
}

type rateLimit struct {
	RequestsPerUnit uint32 `yaml:"requests_per_unit"`
	Unit            string
	Unlimited       bool
	Name            string
	Replaces        []replaced
	Limit           string
	Candidate       string
}

type replaced struct{ Name string }

// meanings are the keys that have a meaning, by the places of their maps. The reference accepts
// each of its keys in any map.
var meanings = []struct {
	at   *regexp.Regexp
	keys []string
}{
	{regexp.MustCompile(`^$`), []string{"domain", "descriptors", "all_or_nothing"}},
	{regexp.MustCompile(`^descriptors\[\d+\](\.descriptors\[\d+\])*$`), []string{
		"key", "value", "rate_limit", "descriptors", "shadow_mode", "quota_mode", "detailed_metric", "value_to_metric", "share_threshold",
	}},
	{regexp.MustCompile(`\]\.rate_limit$`), []string{"unit", "requests_per_unit", "unlimited", "name", "replaces", "limit", "candidate"}},
	{regexp.MustCompile(`\]\.rate_limit\.replaces\[\d+\]$`), []string{"name"}},
}

// own are the keys beyond those of the reference.
var own = []string{"all_or_nothing", "limit", "candidate"}

// reading is a file that is being read.
type reading struct {
	name   string
	set    *Set
	merge  bool
	faults []error
}

func (r *reading) bad(at place, format string, args ...any) {
	r.faults = append(r.faults, &fault.Error{File: r.name, Line: at.line, Key: at.path, Err: fmt.Errorf(format, args...)})
}

// read adds the rules of a file to the set. If it is faulty the set is of no use.
func (r *reading) read(text []byte) {
	loose := map[any]any{}
	if err := yaml.Unmarshal(text, &loose); err != nil {
		r.unreadable(text, err)
		return
	}
	var at place
	if top, faults := configfile.Document(r.name, text); top != nil {
		at = place{node: top, line: top.Line}
		r.faults = faults
	}
	r.checkKeys(at, loose)
	if len(r.faults) > 0 {
		return
	}
	var f file
	if err := yaml.Unmarshal(text, &f); err != nil {
		r.unreadable(text, err)
		return
	}
	if f.Domain == "" {
		r.bad(at.key("domain"), "a name that is not empty is accepted")
		return
	}
	d := r.set.domains[f.Domain]
	switch {
	case d == nil:
		d = &Domain{AllOrNothing: f.AllOrNothing, file: r.name}
		r.set.domains[f.Domain] = d
	case !r.merge:
		r.bad(at.key("domain"), "%q is the domain of %s too: the rules of a domain are in one file unless domains are merged", f.Domain, d.file)
		return
	case d.AllOrNothing != f.AllOrNothing:
		r.bad(at.key("all_or_nothing"), "it is %t here and %t in %s, which has the same domain: the files of a domain agree on it",
			f.AllOrNothing, d.AllOrNothing, d.file)
		return
	}
	r.descriptors(&d.root, f.Domain, at.key("descriptors"), f.Descriptors)
}

// unreadable adds the faults that the parser found.
func (r *reading) unreadable(text []byte, err error) {
	texts := []string{err.Error()}
	var types *yaml.TypeError
	if errors.As(err, &types) {
		texts = types.Errors
	}
	r.faults = append(r.faults, configfile.Unreadable(r.name, text, texts...)...)
}

// checkKeys refuses maps with keys that have no meaning, and values that no key accepts.
func (r *reading) checkKeys(at place, m map[any]any) {
	names := map[string]any{}
	for k, v := range m {
		if name, ok := k.(string); ok {
			names[name] = v
		} else {
			r.bad(at, "the key %v is not a text: write it in quotes", k)
		}
	}
	var accepted, known []string
	for _, m := range meanings {
		known = append(known, m.keys...)
		if m.at.MatchString(at.path) {
			accepted = m.keys
		}
	}
	if accepted == nil {
		return // something other than a map is accepted here, and its type is the fault
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		here := at.key(name)
		if !slices.Contains(accepted, name) {
			why := errUnknown
			if slices.Contains(known, name) && !slices.Contains(own, name) {
				why = fault.ErrUnused
			}
			r.bad(here, "%w: the keys here are %s", why, strings.Join(accepted, ", "))
			continue
		}
		switch value := names[name].(type) {
		case []any:
			for i, e := range value {
				if inner, ok := e.(map[any]any); ok {
					r.checkKeys(here.index(i), inner)
				} else {
					r.bad(here.index(i), "%v is no map: a list of maps is accepted", e)
				}
			}
		case map[any]any:
			r.checkKeys(here, value)
		case string, int, bool, nil:
		default:
			r.bad(here, "%v is neither text, whole number, true nor false: text goes in quotes", value)
		}
	}
}

var errUnknown = errors.New("this key is not known here")

// descriptors adds a list of descriptors below a node.
func (r *reading) descriptors(to *node, path string, at place, list []descriptor) {
	for i := range list {
		c, here := &list[i], at.index(i)
		if c.Key == "" {
			r.bad(here.key("key"), "a name that is not empty is accepted")
			continue
		}
		text := c.Key
		if c.Value != "" {
			text += "_" + c.Value
		}
		if to.children[text] != nil {
			r.bad(here, "there are two descriptors %q of %s: each pair of key and value may stand once at a level", text, path)
			continue
		}
		pattern, ends := strings.CutSuffix(text, "*")
		if strings.Contains(pattern, "*") {
			where := here.key("value")
			if strings.Contains(c.Key, "*") {
				where = here.key("key")
			}
			r.bad(where, "an asterisk before the end of %q is no wildcard, and %w: one at the end is accepted", text, fault.ErrUnused)
			continue
		}
		if c.ShareThreshold && !ends {
			r.bad(here.key("share_threshold"), "it is accepted beside a value that ends with *, which %q does not", text)
			continue
		}
		child := &node{shared: c.ShareThreshold}
		if c.RateLimit != nil {
			child.rule = r.rule(c, path+"."+text, here.key("rate_limit"))
		}
		if to.children == nil {
			to.children = map[string]*node{}
		}
		to.children[text] = child
		if ends {
			to.wildcards = append(to.wildcards, wildcard{text: text, prefix: pattern, node: child})
		}
		r.descriptors(child, path+"."+text, here.key("descriptors"), c.Descriptors)
	}
}

// rule returns the rule of a descriptor. Its faults are added.
func (r *reading) rule(c *descriptor, path string, at place) *Rule {
	l := c.RateLimit
	rule := &Rule{
		Path: path, File: r.name, Line: at.line, Unlimited: l.Unlimited,
		Name: l.Name, Shadow: c.ShadowMode, Quota: c.QuotaMode,
	}
	for i, other := range l.Replaces {
		name := at.key("replaces").index(i).key("name")
		switch other.Name {
		case "":
			r.bad(name, "the name of another rate_limit is accepted")
		case l.Name:
			r.bad(name, "%q is the name of this rate_limit: that of another one is accepted", other.Name)
		}
		rule.Replaces = append(rule.Replaces, other.Name)
	}
	unit := parseUnit(l.Unit)
	switch {
	case l.Limit != "":
		if l.Unit != "" || l.RequestsPerUnit != 0 || l.Unlimited {
			r.bad(at.key("limit"), "it is accepted in place of unit, requests_per_unit and unlimited, not beside them")
			return rule
		}
		rule.Limit = r.policy(at.key("limit"), l.Limit)
	case l.Unlimited && unit != 0:
		r.bad(at.key("unit"), "%q is accepted in a rate_limit that is not unlimited", l.Unit)
	case !l.Unlimited && unit == 0:
		r.bad(at.key("unit"), "%q is no unit: second, minute, hour, day, week, month and year are accepted", l.Unit)
	case !l.Unlimited:
		rule.Requests, rule.Unit = l.RequestsPerUnit, unit
	}
	if l.Candidate != "" {
		if l.Unlimited {
			r.bad(at.key("candidate"), "it is accepted in a rate_limit that is not unlimited")
			return rule
		}
		rule.Candidate = r.policy(at.key("candidate"), l.Candidate)
	}
	r.set.rules = append(r.set.rules, rule)
	return rule
}

// policy reads the text of a limit. One that delays calls is refused: the service answers at
// once.
func (r *reading) policy(at place, text string) policy.Policy {
	p, err := policy.Parse(text)
	switch {
	case err != nil:
		r.bad(at, "%w", err)
	case p.Delays():
		r.bad(at, "%q delays calls, which this service does not: any other limit is accepted, or a queue 0", text)
		p = nil
	}
	return p
}
