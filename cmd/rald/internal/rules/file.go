package rules

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/ral-limiter/ral/cmd/rald/internal/configfile"
	"github.com/ral-limiter/ral/policy"
)

var (
	fileKeys       = []string{"domain", "descriptors", "all_or_nothing"}
	descriptorKeys = []string{
		"key", "value", "rate_limit", "descriptors", "shadow_mode", "quota_mode", "detailed_metric", "value_to_metric", "share_threshold", "metadata",
	}
	limitKeys    = []string{"unit", "requests_per_unit", "unlimited", "name", "replaces", "limit", "candidate"}
	replacedKeys = []string{"name"}
)

// accepted by the reference in any map
var anywhere = slices.DeleteFunc(slices.Concat(fileKeys, descriptorKeys, limitKeys), func(key string) bool {
	return slices.Contains([]string{"all_or_nothing", "limit", "candidate"}, key)
})

type reading struct {
	*configfile.Reader
	name  string
	set   *Set
	merge bool
	links *links
}

// read adds the rules of a file to the set, which is useless after a fault.
func (r *reading) read(text []byte) {
	var top configfile.Place
	r.Reader, top = configfile.NewReader(r.name, text, anywhere...)
	places := r.Fields(top, fileKeys...)
	if places == nil {
		return
	}
	domain, allOrNothing := r.text(places["domain"]), r.isTrue(places["all_or_nothing"])
	if domain == "" {
		r.Fault(place(top, places, "domain"), "a name that is not empty is accepted")
		return
	}
	d := r.set.domains[domain]
	switch {
	case d == nil:
		d = &Domain{AllOrNothing: allOrNothing, file: r.name}
		r.set.domains[domain] = d
	case !r.merge:
		r.Fault(places["domain"], "%q is the domain of %s too: the rules of a domain are in one file unless domains are merged", domain, d.file)
		return
	case d.AllOrNothing != allOrNothing:
		r.Fault(place(top, places, "all_or_nothing"), "it is %t here and %t in %s, which has the same domain: the files of a domain agree on it",
			allOrNothing, d.AllOrNothing, d.file)
		return
	}
	r.descriptors(&d.root, domain, domain, places["descriptors"])
}

func place(in configfile.Place, places map[string]configfile.Place, key string) configfile.Place {
	if place, ok := places[key]; ok {
		return place
	}
	return in.Missing(key)
}

// Types are as in the reference's parser: text may be a number or true, and null is a missing key.

// text returns a text, a whole number, true or false.
func (r *reading) text(place configfile.Place) string {
	if place.IsNull() {
		return ""
	}
	var value any
	if !place.IsScalar() {
		r.Fault(place, "a text is accepted")
		return ""
	} else if err := place.Decode(&value); err != nil {
		r.Fault(place, "%w", err)
		return ""
	}
	switch value.(type) {
	case string, int, bool, time.Time:
	default:
		r.Fault(place, "%s is neither text, whole number, true nor false: text goes in quotes", place.Text())
	}
	return place.Text()
}

// isTrue returns a bool by any of its names in YAML 1.1.
func (r *reading) isTrue(place configfile.Place) bool {
	is, ok := boolOf(place)
	if !ok && !place.IsNull() {
		r.Fault(place, "%.80q: true or false is accepted", place.Text())
	}
	return is
}

func boolOf(place configfile.Place) (is, ok bool) {
	if place.IsNull() || place.IsQuoted() {
		return false, false
	}
	switch place.Text() {
	case "y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON":
		return true, true
	case "n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF":
		return false, true
	}
	return false, false
}

// unused faults a key that is set without a limit.
func (r *reading) unused(isSet bool, place configfile.Place) {
	if isSet {
		r.Fault(place, "%w: it is accepted with a rate_limit that is not unlimited", configfile.ErrUnused)
	}
}

// metric notes a key of the reference's metrics, without effect here.
func (r *reading) metric(place configfile.Place) {
	if r.isTrue(place) {
		r.set.unused = append(r.set.unused, place.Error(fmt.Errorf("%w: metrics are by rule", configfile.ErrUnused)))
	}
}

func (r *reading) metadata(place configfile.Place) map[string]any {
	if place.IsNull() {
		return nil
	}
	fields, _ := r.value(place, true).(map[string]any)
	if len(fields) == 0 {
		return nil
	}
	return fields
}

// value returns any value in the types of JSON.
func (r *reading) value(place configfile.Place, isMap bool) any {
	switch {
	case isMap || place.IsMap():
		all := map[string]any{}
		for _, inner := range r.Pairs(place, "with any keys") {
			all[inner.Name] = r.value(inner, false)
		}
		return all
	case place.IsNull():
		return nil
	case !place.IsScalar():
		all := []any{}
		for _, inner := range r.List(place) {
			all = append(all, r.value(inner, false))
		}
		return all
	}
	if is, ok := boolOf(place); ok {
		return is
	}
	var number float64
	if place.Decode(&number) != nil {
		return place.Text()
	}
	if math.IsInf(number, 0) || math.IsNaN(number) {
		r.Fault(place, "%s: a finite number is accepted", place.Text())
	}
	return number
}

func (r *reading) requests(place configfile.Place) (n uint32) {
	if !place.IsNull() && (r.text(place) == "" || place.Decode(&n) != nil) {
		r.Fault(place, "%.80q: a whole number from 0 to 4294967295 is accepted, without quotes", place.Text())
	}
	return n
}

func (r *reading) list(place configfile.Place) []configfile.Place {
	if place.IsNull() {
		return nil
	}
	return r.List(place)
}

func (r *reading) descriptors(to *node, domain, path string, list configfile.Place) {
	for _, here := range r.list(list) {
		places := r.Fields(here, descriptorKeys...)
		key, value, shares := r.text(places["key"]), r.text(places["value"]), r.isTrue(places["share_threshold"])
		shadow, quota := r.isTrue(places["shadow_mode"]), r.isTrue(places["quota_mode"])
		r.metric(places["detailed_metric"])
		r.metric(places["value_to_metric"])
		metadata := r.metadata(places["metadata"])
		text := key
		if value != "" {
			text += "_" + value
		}
		isPattern := strings.Contains(text, "*")
		switch {
		case places == nil:
			continue
		case key == "":
			r.Fault(place(here, places, "key"), "a name that is not empty is accepted")
			continue
		case to.children[text] != nil:
			r.Fault(here, "there are two descriptors %q of %s: each pair of key and value may stand once at a level", text, path)
			continue
		case shares && !isPattern:
			r.Fault(places["share_threshold"], "it is accepted beside a value with *, which %q has not", text)
			continue
		}
		child := &node{shared: shares}
		limit := places["rate_limit"]
		if !limit.IsNull() {
			child.rule = &Rule{Path: path + "." + text, File: r.name, Line: limit.Line, Shadow: shadow, Quota: quota, Metadata: metadata}
			r.rule(child.rule, domain, limit)
		}
		if child.rule == nil || child.rule.Unlimited {
			r.unused(shadow, places["shadow_mode"])
			r.unused(quota, places["quota_mode"])
			r.unused(metadata != nil, places["metadata"])
		}
		if to.children == nil {
			to.children = map[string]*node{}
		}
		to.children[text] = child
		switch {
		case isPattern:
			to.wildcards = append(to.wildcards, wildcard{text: text, parts: bytes.Split([]byte(text), []byte("*")), node: child})
			r.links.patterns = append(r.links.patterns, pattern{to, child, text, here})
		case value == "":
			r.links.patterns = append(r.links.patterns, pattern{to, child, text + "_*", here})
		}
		r.descriptors(child, domain, path+"."+text, places["descriptors"])
	}
}

func (r *reading) rule(rule *Rule, domain string, here configfile.Place) {
	places := r.Fields(here, limitKeys...)
	if places == nil {
		return
	}
	rule.Name, rule.Unlimited = r.text(places["name"]), r.isTrue(places["unlimited"])
	r.set.rules = append(r.set.rules, rule)
	for _, entry := range r.list(places["replaces"]) {
		places := r.Fields(entry, replacedKeys...)
		name := r.text(places["name"])
		switch {
		case places != nil && name == "":
			r.Fault(place(entry, places, "name"), "the name of another rate_limit is accepted")
		case name == rule.Name:
			r.Fault(places["name"], "%q is the name of this rate_limit: another's name is accepted", name)
		}
		rule.Replaces = append(rule.Replaces, name)
		r.links.replaced = append(r.links.replaced, replaced{name: nameIn{domain, name}, place: places["name"]})
	}
	r.links.named[nameIn{domain, rule.Name}] = true
	name, requests := r.text(places["unit"]), r.requests(places["requests_per_unit"])
	unit := ParseUnit(strings.ToUpper(name))
	switch limit := places["limit"]; {
	case !limit.IsNull():
		if name != "" || requests != 0 || rule.Unlimited {
			r.Fault(limit, "it is accepted in place of unit, requests_per_unit and unlimited, not beside them")
			return
		}
		all := []configfile.Place{limit}
		if !limit.IsScalar() {
			all = r.List(limit)
		}
		if len(all) == 0 || len(all) > maxLimits {
			r.Fault(limit, "%d limits: 1 to %d are accepted", len(all), maxLimits)
			return
		}
		rule.Limit = r.policy(all[0], r.text(all[0]))
		for _, more := range all[1:] {
			rule.More = append(rule.More, r.policy(more, r.text(more)))
		}
	case rule.Unlimited && unit != 0:
		r.Fault(places["unit"], "%q is accepted in a rate_limit that is not unlimited", name)
	case rule.Unlimited:
		r.unused(requests != 0, places["requests_per_unit"])
		r.unused(rule.Name != "", places["name"])
	case unit == 0:
		r.Fault(place(here, places, "unit"), "%q is no unit: second, minute, hour, day, week, month and year are accepted", name)
	default:
		rule.Requests, rule.Unit = requests, unit
	}
	if candidate := r.text(places["candidate"]); candidate != "" {
		if rule.Unlimited {
			r.Fault(places["candidate"], "it is accepted in a rate_limit that is not unlimited")
			return
		}
		rule.Candidate = r.policy(places["candidate"], candidate)
	}
}

// maxLimits bounds the limits of a rule.
const maxLimits = 8

// policy parses a limit. The service answers at once, so limits that delay calls are refused.
func (r *reading) policy(place configfile.Place, text string) policy.Policy {
	limit, err := policy.Parse(text)
	_, inUse := limit.(policy.Occupier)
	switch {
	case err != nil:
		r.Fault(place, "%w", err)
	case inUse:
		r.Fault(place, "%q counts requests until they end, and Envoy tells this service no end of a request: a limit of units over time is accepted", text)
		limit = nil
	case limit.Delays():
		r.Fault(place, "%q delays calls, which this service does not: any other limit is accepted, or a queue 0", text)
		limit = nil
	}
	return limit
}
