package checkserver

import (
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"github.com/ral-limiter/ral/cmd/rald/internal/configfile"
	"github.com/ral-limiter/ral/cmd/rald/internal/configured"
	"github.com/ral-limiter/ral/internal/adapter/clientaddr"
	"github.com/ral-limiter/ral/policy"
)

// OverridesName is the name of the file with overrides for several rules, in the same directory:
//
//	partners:                     # overrides: partners
//	  partner-7: window 5000/h
const OverridesName = "overrides.yaml"

// override is the limit of requests with one value.
type override struct {
	limit policy.Policy
	// prefix is the prefix of its keys.
	prefix string
	id     string
}

// overrideFor returns the override for a request, or nil.
func (l *limit) overrideFor(request *http.Request) *override {
	if l.value == nil {
		return nil
	}
	return l.overrides[l.value(request)]
}

func (l *limit) policyFor(request *http.Request) policy.Policy {
	if override := l.overrideFor(request); override != nil {
		return override.limit
	}
	return l.limit
}

// override reads the overrides of a limit. find finds its keys, and text tells their kind.
func (p *parser) override(places map[string]configfile.Place, limit *limit, match string, find keyFunc, text string) {
	place, ok := places["overrides"]
	by, chosen := places["override_by"]
	switch {
	case !ok && chosen:
		p.Fault(by, "without overrides it has no effect")
		return
	case !ok:
		return
	case chosen:
		limit.value, text = p.part(by, by.Text(), match)
	case !places["key"].IsScalar() || text == "everybody":
		p.Fault(place, "override_by is required, as the key is no single value: a part of a key is accepted, such as header X-Plan")
		return
	default:
		limit.value = find
	}
	if place.IsScalar() {
		name := place.Text()
		p.used[name] = true
		if place, ok = p.sets()[name]; !ok {
			p.Fault(places["overrides"], "%.80q: a map from values to limits is accepted, or the name of such a map in %s", name, OverridesName)
			return
		}
	}
	limit.overrides = map[string]*override{}
	for _, place := range p.Pairs(place, "from values to limits, such as partner-7: window 5000/h") {
		if want := valueOf(text, place.Name); want != "" {
			p.Fault(place, "no request has this value of %s: %s is accepted", text, want)
			continue
		}
		o := &override{id: fmt.Sprintf("%q", []string{match, limit.Name, "override", place.Name})}
		known, isConfigured := p.named(place.Text())
		if isConfigured {
			o.id, o.limit = place.Text(), known
			p.sameKind(place, o.id, limit.kind)
		} else if o.limit, isConfigured = p.parsed(place); !isConfigured {
			continue
		}
		p.overTime(place, o.limit)
		if limit.cost > o.limit.Limit() {
			p.Fault(place, "the cost of a request is %d, and %q admits at most %d at once", limit.cost, o.limit, o.limit.Limit())
		}
		o.prefix = configured.Prefix(o.id)
		limit.overrides[clientaddr.Bounded(place.Name)] = o
	}
	key := limit.Key
	limit.Key = func(request *http.Request) string {
		override := limit.overrideFor(request)
		if override == nil {
			return key(request)
		}
		if key := find(request); key != "" {
			return override.prefix + key
		}
		return ""
	}
}

// valueOf returns the accepted form if a part of a key never has the value.
func valueOf(part, value string) (want string) {
	bits, isAddress := strings.CutPrefix(part, "address")
	if !isAddress {
		if value == "" {
			return "1 or more characters"
		}
		return ""
	}
	n := 64
	if bits != "" {
		// The part was read before.
		n, _ = strconv.Atoi(bits[1:])
	}
	addr, err := netip.ParseAddr(value)
	if err != nil {
		return "an address such as 192.0.2.1"
	}
	addr = addr.Unmap()
	if addr.Is6() {
		addr = netip.PrefixFrom(addr, n).Masked().Addr()
	}
	if addr.String() != value {
		return addr.String()
	}
	return ""
}

// checkSets refuses overrides that no rule has.
func (p *parser) checkSets() {
	for name, at := range p.sets() {
		if !p.used[name] {
			p.Fault(at, "no rule of %s has these overrides", Name)
		}
	}
}

// sets returns the overrides of OverridesName by their names.
func (p *parser) sets() map[string]configfile.Place {
	if p.others == nil {
		p.others = map[string]configfile.Place{}
		if top, ok := p.Beside(OverridesName); ok {
			for _, at := range p.Pairs(top, "from names to overrides") {
				p.others[at.Name] = at
			}
		}
	}
	return p.others
}

// allow reads the values and networks of requests that no rule limits, by part of a key.
func (p *parser) allow(at configfile.Place) (all []func(*http.Request) bool) {
	for _, place := range p.Pairs(at, "from address, header NAME, cookie NAME or query NAME to values") {
		list := p.List(place)
		if place.Name == "address" {
			var prefixes []netip.Prefix
			for _, place := range list {
				if prefix, ok := p.prefix(place, "an address"); ok {
					if ones := prefix.Bits(); ones == 0 || prefix.Addr().Is4In6() && ones <= 96 {
						p.Fault(place, "%.80q has all addresses, so that no rule applies: smaller networks are accepted", place.Text())
					}
					prefixes = append(prefixes, prefix)
				}
			}
			set, err := clientaddr.NewPrefixes(Name, place.Key, prefixes)
			if err != nil {
				p.Fault(place, "%w", err)
			}
			if of := p.clientAddr(place, 128); of != nil {
				all = append(all, func(request *http.Request) bool { return set.Contains(of.Key(request)) })
			}
			continue
		}
		if place.Name == "everybody" || strings.HasPrefix(place.Name, "address/") {
			p.Fault(place, "address, header NAME, cookie NAME or query NAME is accepted")
			continue
		}
		find, _ := p.part(place, place.Name, "")
		values := map[string]bool{}
		for _, place := range list {
			if place.Text() == "" {
				p.Fault(place, "1 or more characters are accepted")
			}
			values[clientaddr.Bounded(place.Text())] = true
		}
		if find != nil {
			all = append(all, func(request *http.Request) bool { return values[find(request)] })
		}
	}
	return all
}
