package checkserver

import (
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ral-limiter/ral/cmd/rald/internal/configfile"
	"github.com/ral-limiter/ral/cmd/rald/internal/configured"
	"github.com/ral-limiter/ral/cmd/rald/internal/limitfile"
	"github.com/ral-limiter/ral/httplimit"
	"github.com/ral-limiter/ral/internal/adapter/admission"
	"github.com/ral-limiter/ral/internal/adapter/clientaddr"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// Name is the name of the file in its directory.
const Name = "check.yaml"

// Rules are the contents of a file, made by Parse:
//
//	proxy: nginx                # nginx, caddy, traefik, or a map of header fields
//	rules:
//	  - match: POST /login      # a pattern of http.ServeMux
//	    limit: login            # the name of a limit, or the text of one
//	    key: address
//
// docs/serving.md has all keys.
type Rules struct {
	file   string
	proxy  proxy
	status int
	// spread is httplimit.Options.Spread.
	spread time.Duration
	// once is the field with a request's id, "" to count each.
	once    string
	trusted *clientaddr.Prefixes
	// onSocket is a trusted address for connections over Unix sockets.
	onSocket string
	// reading is the backends' reading of paths, as far as known has its bits.
	reading, known pathReading
	// allow has the requests that no rule limits.
	allow []func(*http.Request) bool
	rules []rule
}

// allows reports whether no rule limits a request.
func (of *Rules) allows(request *http.Request) bool {
	return slices.ContainsFunc(of.allow, func(allows func(*http.Request) bool) bool { return allows(request) })
}

// Len returns the number of rules.
func (of *Rules) Len() int { return len(of.rules) }

// AddTo adds the rules' limits to the configured limits. Clients cannot call unnamed limits.
func (of *Rules) AddTo(file *limitfile.File) {
	for _, rule := range of.rules {
		add := func(id string, limit policy.Policy) {
			file.Add(limitfile.Named{Name: id, Policy: limit, Place: rule.place})
		}
		for _, limit := range rule.limits {
			add(limit.id, limit.limit)
			if limit.without != "" {
				add(limit.without, limit.limit)
			}
			for _, override := range limit.overrides {
				add(override.id, override.limit)
			}
		}
	}
}

type rule struct {
	place     configfile.Place
	match     string
	unlimited bool
	// inform is the field that tells the backend of a refusal, or "".
	inform string
	limits []limit
}

type limit struct {
	// Limit has no Limiter, Cost and PolicyFor.
	httplimit.Limit[string]
	limit policy.Policy
	// id names the limit in configured.Limits, and without, unless "", that for requests without a
	// key.
	id, without string

	// kind is the kind of key.
	kind string
	cost int64

	// value is for overrides. It is nil if there are none.
	value     keyFunc
	overrides map[string]*override
}

// Limits finds a configured limit by its name.
type Limits = func(name string) (policy.Policy, bool)

// Read returns the rules of the file in the directory, or nil if there is none.
func Read(dir string, named Limits) (*Rules, error) {
	file, text, err := configfile.ReadIn(dir, Name)
	if text == nil || err != nil {
		return nil, err
	}
	return Parse(file, text, named)
}

// Parse returns the rules of a text. The error joins a *configfile.Error for each fault.
func Parse(file string, text []byte, named Limits) (*Rules, error) {
	reader, top := configfile.NewReader(file, text)
	p := parser{Reader: reader, named: named, kinds: map[string]kind{}, used: map[string]bool{}}
	rules := p.rules(top)
	if err := p.Err(); err != nil {
		return nil, err
	}
	return rules, nil
}

type parser struct {
	*configfile.Reader
	named   Limits
	proxy   proxy
	trusted []netip.Prefix
	// kinds has the kinds of the keys of configured limits, by name.
	kinds map[string]kind
	// others has the places of OverridesName. It is nil before its reading.
	others map[string]configfile.Place
	// used has its names.
	used map[string]bool
	// seen has the patterns so far.
	seen routes
}

type kind struct {
	text string
	line int
}

func (p *parser) rules(top configfile.Place) *Rules {
	accepted := []string{"proxy", "trusted", "allow", "once", "status", "spread", "rules"}
	for _, s := range settings {
		accepted = append(accepted, s.key)
	}
	places := p.Fields(top, accepted...)
	if places == nil {
		return nil
	}
	p.readProxy(top, places)
	rules := &Rules{file: top.File, proxy: p.proxy, status: p.proxy.status}
	p.readTrusted(places)
	var err error
	if rules.trusted, err = clientaddr.NewPrefixes(Name, "trusted", p.trusted); err != nil {
		p.Fault(places["trusted"], "%w", err)
	}
	if len(p.trusted) > 0 {
		addr := p.trusted[0].Addr()
		// No peer has this address.
		if addr.IsUnspecified() {
			addr = addr.Next()
		}
		rules.onSocket = addr.String()
	}
	if at, ok := places["allow"]; ok {
		rules.allow = p.allow(at)
	}
	if at, ok := places["status"]; ok {
		rules.status = p.status(at)
	}
	if at, ok := places["once"]; ok {
		if rules.once = http.CanonicalHeaderKey(at.Text()); !clientaddr.IsToken(rules.once) {
			p.Fault(at, "%.80q: the name of a header field is accepted, such as X-Original-Id", at.Text())
		}
	}
	if at, ok := places["spread"]; ok {
		if rules.spread, err = time.ParseDuration(at.Text()); err != nil || rules.spread <= 0 {
			p.Fault(at, "%.80q: a time such as 30s is accepted", at.Text())
		}
	}
	p.readReading(places, rules)
	list, ok := places["rules"]
	if !ok {
		p.Fault(top, "rules is required: a list of maps with the key match")
		return rules
	}
	for _, at := range p.List(list) {
		if rule, ok := p.rule(at); ok {
			rules.rules = append(rules.rules, rule)
		}
	}
	p.checkSets()
	return rules
}

func (p *parser) readProxy(top configfile.Place, places map[string]configfile.Place) {
	place, ok := places["proxy"]
	if !ok {
		p.Fault(top, "proxy is required, as it names the header fields to believe: nginx, caddy, traefik, or a map with the key uri")
		return
	}
	if place.IsScalar() {
		if p.proxy, ok = proxies[place.Text()]; !ok {
			p.Fault(place, "%.80q is not a known proxy: nginx, caddy, traefik, or a map with the key uri is accepted", place.Text())
		}
		return
	}
	names := p.Fields(place, "uri", "method", "host", "address")
	for name, field := range map[string]*string{
		"uri": &p.proxy.uri, "method": &p.proxy.method, "host": &p.proxy.host, "address": &p.proxy.address,
	} {
		place, ok := names[name]
		if !ok {
			continue
		}
		text := place.Text()
		if !clientaddr.IsToken(text) || strings.EqualFold(text, "Host") && name != "host" {
			p.Fault(place, "%.80q: the name of a header field is accepted, such as X-Forwarded-Uri", text)
			continue
		}
		*field = http.CanonicalHeaderKey(text)
	}
	if _, ok := names["uri"]; !ok && names != nil {
		p.Fault(place, "uri is required: the header field in which the proxy sends the URI of the request")
	}
}

func (p *parser) readTrusted(places map[string]configfile.Place) {
	place, ok := places["trusted"]
	if !ok {
		p.trusted = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
		return
	}
	list := p.List(place)
	if len(list) == 0 {
		p.Fault(place, "1 or more addresses or prefixes of proxies are accepted")
	}
	for _, proxy := range list {
		prefix, ok := p.prefix(proxy, "the address of a proxy")
		switch {
		case !ok:
		case clientaddr.IsTooWide(prefix):
			p.Fault(proxy, "%.80q has clients' addresses, and a client that is trusted chooses its address: networks of 7 bits or more are accepted", proxy.Text())
		default:
			p.trusted = append(p.trusted, prefix)
		}
	}
}

func (p *parser) prefix(place configfile.Place, address string) (prefix netip.Prefix, ok bool) {
	prefix, err := clientaddr.ParsePrefix(place.Text())
	if err != nil {
		p.Fault(place, "%.80q: %s or a prefix is accepted, such as 10.0.0.0/8", place.Text(), address)
	}
	return prefix, err == nil
}

func (p *parser) readReading(places map[string]configfile.Place, rules *Rules) {
	for _, s := range settings {
		place, ok := places[s.key]
		switch {
		case !ok:
		case place.Text() == s.with:
			rules.reading |= s.bit
			rules.known |= s.bit
		case place.Text() == s.without:
			rules.known |= s.bit
		default:
			p.Fault(place, "%.80q: %s or %s is accepted", place.Text(), s.without, s.with)
		}
	}
}

func (p *parser) status(place configfile.Place) int {
	status, err := strconv.Atoi(place.Text())
	switch {
	case err != nil || status < 400 || status > 599:
		p.Fault(place, "%.80q: 400 to 599 is accepted", place.Text())
	case p.proxy == proxies["nginx"] && status != http.StatusUnauthorized && status != http.StatusForbidden:
		p.Fault(place, "%d: 403 or 401 is accepted, as nginx answers 500 for any other", status)
	}
	return status
}

// locations are net/http's notes about registrations.
var locations = regexp.MustCompile(` \(registered at [^)]*\)`)

func (p *parser) rule(place configfile.Place) (rule rule, ok bool) {
	before := len(p.Faults())
	places := p.Fields(place, append([]string{"match", "unlimited", "inform", "limits"}, keysOfLimits...)...)
	if places == nil {
		return rule, false
	}
	rule.place = place
	match, ok := places["match"]
	if !ok {
		p.Fault(place, "match is required: a pattern such as POST /login")
		return rule, false
	}
	rule.match = match.Text()
	p.checkMatch(match, rule.match)
	if inform, ok := places["inform"]; ok {
		if rule.inform = http.CanonicalHeaderKey(inform.Text()); !clientaddr.IsFree(rule.inform) {
			p.Fault(inform, "%.80q: the name of a header field that HTTP itself does not need is accepted, such as X-Over-Limit", inform.Text())
		}
	}
	_, several := places["limits"]
	told := len(p.Faults())
	rule.unlimited = p.Bool(places, "unlimited")
	switch {
	// It is unknown whether the rule has limits.
	case len(p.Faults()) > told:
	case rule.unlimited && len(places) > 2:
		p.Fault(places["unlimited"], "a rule without limits has no other keys than match")
	case rule.unlimited:
	case several:
		for _, key := range keysOfLimits {
			if at, ok := places[key]; ok {
				p.Fault(at, "it stands in each limit of the list limits")
			}
		}
		rule.limits = p.limits(places["limits"], rule.match)
	default:
		rule.limits = []limit{p.limit(place, places, rule.match)}
	}
	if len(p.Faults()) == before {
		if err := p.seen.add(withSlash(rule.match), pass); err != nil {
			p.Fault(match, "with a slash at the end of each path, %s", locations.ReplaceAllString(strings.ReplaceAll(err.Error(), "\n", " "), ""))
		}
	}
	return rule, true
}

// checkMatch refuses patterns that match no request of these proxies.
func (p *parser) checkMatch(place configfile.Place, match string) {
	fields := strings.Fields(match)
	if len(fields) == 0 || len(fields) > 2 || !strings.Contains(fields[len(fields)-1], "/") {
		p.Fault(place, "%.80q: a pattern of a path is accepted, with a method and a host before it if they matter, such as POST example.org/login", match)
		return
	}
	host, path, _ := strings.Cut(fields[len(fields)-1], "/")
	path = "/" + path
	if len(fields) == 2 {
		switch method := fields[0]; {
		case p.proxy.method == "" && p.proxy.uri != "":
			p.Fault(place, "%.80q has a method, and proxy names no field method", match)
		case !clientaddr.IsToken(method) || method != strings.ToUpper(method):
			p.Fault(place, "%.80q: a method in upper case is accepted", method)
		}
	}
	switch {
	case host != "" && p.proxy.host == "" && p.proxy.uri != "":
		p.Fault(place, "%.80q has a host, and proxy names no field host", match)
	case host != canonicalHost(host) || strings.Contains(host, "*"):
		p.Fault(place, "%.80q: a host in lower case is accepted, without a port, a final dot and *", host)
	}
	want := strings.TrimSuffix(strings.TrimSuffix(path, "{$}"), "/")
	raw, _, wrong := splitURI(path)
	if address, err := pathReading(0).clean(raw); wrong != nil || err != nil || strings.TrimSuffix(strings.TrimSuffix(address.Path, "{$}"), "/") != want {
		p.Fault(place, "%.80q is the path of no request: it is accepted without escapes, backslashes, empty segments, dots, parameters and a query", path)
	}
	if err := register(new(http.ServeMux), match, pass); err != nil {
		p.Fault(place, "%w", err)
	}
}

// maxLimits bounds the limits of a rule.
const maxLimits = admission.MaxLimits

var keysOfLimits = []string{"limit", "name", "key", "without_key", "cost", "shadow", "hidden", "overrides", "override_by"}

func (p *parser) limits(place configfile.Place, match string) (all []limit) {
	list := p.List(place)
	if len(list) < 1 || len(list) > maxLimits {
		p.Fault(place, "%d limits: 1 to %d are accepted", len(list), maxLimits)
		return nil
	}
	names := map[string]bool{}
	for _, place := range list {
		places := p.Fields(place, keysOfLimits...)
		if places == nil {
			continue
		}
		limit := p.limit(place, places, match)
		if limit.limit != nil && names[limit.Name] {
			p.Fault(place, "there are two limits named %q in this rule: a name of its own is accepted as name", limit.Name)
		}
		names[limit.Name] = true
		all = append(all, limit)
	}
	return all
}

func (p *parser) limit(place configfile.Place, places map[string]configfile.Place, match string) (limit limit) {
	limit.cost, limit.Shadow, limit.Hidden = 1, p.Bool(places, "shadow"), p.Bool(places, "hidden")
	named, ok := places["limit"]
	if !ok {
		p.Fault(place, "limit is required: the name of a limit of limits.yaml, or the text of one")
		return limit
	}
	// Prefixes of keys, and for requests without a key. Configured names have no brackets and
	// quotes.
	var without string
	text := named.Text()
	known, isConfigured := p.named(text)
	if isConfigured {
		limit.Name, limit.limit, limit.id = text, known, text
		without = fmt.Sprintf("%q", []string{text, "address"})
		if name, has := places["name"]; has {
			p.Fault(name, "a limit of limits.yaml has its name already")
		}
	} else {
		limit.limit, _ = p.parsed(named)
		limit.Name = "default"
		if name, has := places["name"]; has {
			limit.Name = name.Text()
			if want := admission.WrongName(limit.Name); limit.Name == "" || want != "" {
				p.Fault(name, "%.80q: 1 to 64 characters of ASCII are accepted", limit.Name)
			}
		}
		limit.id = fmt.Sprintf("%q", []string{match, limit.Name})
		without = fmt.Sprintf("%q", []string{match, limit.Name, "address"})
	}
	p.overTime(named, limit.limit)
	if cost, ok := places["cost"]; ok {
		p.cost(cost, &limit)
	}
	key, ok := places["key"]
	if !ok {
		p.Fault(place, "key is required: requests are counted by it, such as address, header X-Api-Key or everybody")
		return limit
	}
	find, text := p.key(key, match)
	if isConfigured && find != nil {
		p.sameKind(key, limit.Name, text)
	}
	limit.Key, limit.kind = prefixed(configured.Prefix(limit.id), find), text
	if find != nil && limit.limit != nil {
		p.override(places, &limit, match, find, text)
	}
	if at, ok := places["without_key"]; ok {
		p.withoutKey(at, &limit, without)
	}
	return limit
}

// parsed reads the text of a limit that has no name.
func (p *parser) parsed(place configfile.Place) (limit policy.Policy, ok bool) {
	limit, err := policy.Parse(place.Text())
	if err != nil {
		p.Fault(place, "%.80q: the name of a limit of limits.yaml is accepted, or the text of one: %w", place.Text(), err)
	}
	return limit, err == nil
}

// overTime refuses a limit of units in use.
func (p *parser) overTime(place configfile.Place, limit policy.Policy) {
	if _, inUse := limit.(policy.Occupier); inUse {
		p.Fault(place, "%q counts requests until they end, and a check sees no end of a request: a limit of units over time is accepted", limit)
	}
}

func (p *parser) cost(place configfile.Place, limit *limit) {
	var err error
	if limit.cost, err = strconv.ParseInt(place.Text(), 10, 64); err != nil || limit.cost < 1 {
		p.Fault(place, "%.80q: 1 or more is accepted", place.Text())
	} else if limit.limit != nil && limit.cost > limit.limit.Limit() {
		p.Fault(place, "%d: at most %d is accepted, which is all that %q admits at once", limit.cost, limit.limit.Limit(), limit.limit)
	}
}

// sameKind refuses a configured limit with different kinds of keys: a client could send another's.
func (p *parser) sameKind(place configfile.Place, name, text string) {
	before, ok := p.kinds[name]
	if !ok {
		p.kinds[name] = kind{text, place.Line}
	} else if before.text != text {
		p.Fault(place, "%s: the keys of limit %s are %s in line %d, and keys of both would be mixed up: a limit of another name is accepted", text, name, before.text, before.line)
	}
}

func (p *parser) withoutKey(place configfile.Place, limit *limit, id string) {
	switch choice := place.Text(); choice {
	case "refuse":
	case "pass":
		limit.WhenNoKey = limits.Skip
	case "address":
		find, key := p.address(place, ""), limit.Key
		if find == nil || key == nil {
			return
		}
		limit.without = id
		instead := prefixed(configured.Prefix(id), find)
		limit.Key = func(request *http.Request) string {
			if key := key(request); key != "" {
				return key
			}
			return instead(request)
		}
	default:
		p.Fault(place, "%.80q: refuse, address or pass is accepted", choice)
	}
}
