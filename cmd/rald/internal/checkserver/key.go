package checkserver

import (
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"github.com/ral-limiter/ral/cmd/rald/internal/configfile"
	"github.com/ral-limiter/ral/httplimit"
	"github.com/ral-limiter/ral/internal/adapter/clientaddr"
)

type keyFunc = func(*http.Request) string

func prefixed(prefix string, find keyFunc) keyFunc {
	if find == nil {
		return nil
	}
	return func(request *http.Request) string {
		if key := find(request); key != "" {
			return prefix + key
		}
		return ""
	}
}

// key reads a key's part or list of parts. text distinguishes kinds of keys. find is nil after a
// fault.
func (p *parser) key(place configfile.Place, match string) (find keyFunc, text string) {
	parts := []configfile.Place{place}
	if !place.IsScalar() {
		if parts = p.List(place); len(parts) == 0 {
			p.Fault(place, "%s is accepted, or a list of them", partsOfKeys)
			return nil, ""
		}
	}
	var finds []keyFunc
	var texts []string
	for _, at := range parts {
		find, text := p.part(at, at.Text(), match)
		if find == nil {
			return nil, ""
		}
		finds, texts = append(finds, find), append(texts, text)
	}
	text = strings.Join(texts, ", ")
	if len(finds) == 1 {
		return finds[0], text
	}
	return httplimit.Join(finds...), text
}

const partsOfKeys = "address, header NAME, cookie NAME, query NAME, path NAME or everybody"

// part reads a part of a key. A value sent twice is none, since the backend may use the other.
func (p *parser) part(place configfile.Place, part, match string) (find keyFunc, text string) {
	kind, name, _ := strings.Cut(part, " ")
	switch {
	case name == "" && kind == "everybody":
		return func(*http.Request) string { return "everybody" }, kind
	case name == "" && kind == "address":
		return p.address(place, ""), kind
	case name == "" && strings.HasPrefix(kind, "address/"):
		return p.address(place, kind[len("address/"):]), kind
	case kind == "header" && strings.EqualFold(name, "Host") && p.proxy.host == "" && p.proxy.uri != "":
		p.Fault(place, "proxy names no field host")
		return nil, ""
	case kind == "header" && clientaddr.IsToken(name):
		return header(name), kind + " " + http.CanonicalHeaderKey(name)
	case kind == "cookie" && clientaddr.IsToken(name):
		return only(func(request *http.Request) (values []string) {
			for _, cookie := range request.CookiesNamed(name) {
				values = append(values, cookie.Value)
			}
			return values
		}), kind + " " + name
	case kind == "query" && name != "":
		return only(func(request *http.Request) []string { return request.URL.Query()[name] }), kind + " " + name
	case kind == "path" && name != "":
		if !strings.Contains(match, "{"+name+"}") && !strings.Contains(match, "{"+name+"...}") {
			p.Fault(place, "%.80q has no wildcard {%s}", match, name)
			return nil, ""
		}
		return only(func(request *http.Request) []string {
			return []string{strings.TrimSuffix(request.PathValue(name), "/")}
		}), kind + " " + name
	}
	p.Fault(place, "%.80q: "+partsOfKeys+" is accepted", part)
	return nil, ""
}

func header(name string) keyFunc {
	value, name := httplimit.ByHeader(name), http.CanonicalHeaderKey(name)
	return func(request *http.Request) string {
		if len(request.Header[name]) > 1 {
			return ""
		}
		return value(request)
	}
}

// only returns a function for a single value. Long values are hashed.
func only(values func(*http.Request) []string) keyFunc {
	return func(request *http.Request) string {
		if all := values(request); len(all) == 1 {
			return clientaddr.Bounded(all[0])
		}
		return ""
	}
}

// address returns a function for the client's address, its leading bits in IPv6, or 64.
func (p *parser) address(place configfile.Place, bits string) keyFunc {
	n := 64
	if bits != "" {
		var err error
		if n, err = strconv.Atoi(bits); err != nil || n < 1 || n > 128 {
			p.Fault(place, "%.80q: address/1 to address/128 is accepted", "address/"+bits)
			return nil
		}
	}
	finder := p.clientAddr(place, n)
	if finder == nil {
		return nil
	}
	return httplimit.ByString(func(request *http.Request) netip.Addr { return finder.Key(request) })
}

// clientAddr finds clients' addresses, with that many bits in IPv6. It is nil after a fault.
func (p *parser) clientAddr(place configfile.Place, bits int) *httplimit.ClientAddr {
	if p.proxy.address == "" || len(p.trusted) == 0 {
		// An unknown proxy is a fault already.
		if p.proxy.uri != "" && p.proxy.address == "" {
			p.Fault(place, "proxy names no field address")
		}
		return nil
	}
	finder, err := httplimit.NewClientAddr(httplimit.AddrConfig{Header: p.proxy.address, Trusted: p.trusted, IPv6Prefix: bits})
	if err != nil {
		p.Fault(place, "%w", err)
		return nil
	}
	return finder
}
