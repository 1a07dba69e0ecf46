package clientaddr

import (
	"cmp"
	"fmt"
	"net/http"
	"net/netip"
	"slices"

	"github.com/ral-limiter/ral/policy"
)

const forwarded = "Forwarded"

// MaxHops is the most proxies that a request may come through.
const MaxHops = 256

// DefaultIPv6Prefix is the number of leading bits of an IPv6 address that tell clients apart.
const DefaultIPv6Prefix = 64

const wholeIPv4 = 32

// Config configures a Finder: see httplimit.AddrConfig.
type Config struct {
	Header     string
	Trusted    []netip.Prefix
	Hops       int
	IPv4Prefix int
	IPv6Prefix int
	NAT64      []netip.Prefix
}

// Finder finds clients' addresses. It is safe for concurrent use. Only malformed addresses and
// backslashes in a Forwarded field allocate. The zero Finder is not Valid.
type Finder struct {
	// header is canonical, or "" for none.
	header  string
	last    func(list string) (rest, last string, more bool)
	parse   func(element string) netip.Addr
	trusted *Prefixes
	hops    int
	// v4 and v6 are the leading bits that make a key.
	v4, v6 int
	nat64  []netip.Prefix
}

// Connection is the Finder of the zero Config.
var Connection = &Finder{last: lastOf, parse: Parse, v4: wholeIPv4, v6: DefaultIPv6Prefix}

// New checks the configuration. An error is a *policy.FieldError about pkg's AddrConfig.
func New(pkg string, config Config) (*Finder, error) {
	owner := pkg + ".AddrConfig"
	bad := func(field string, value any, want string) error {
		return &policy.FieldError{Of: owner, Field: field, Value: value, Want: want}
	}
	trusted, err := NewPrefixes(owner, "Trusted", config.Trusted)
	tooWide := slices.IndexFunc(config.Trusted, IsTooWide)
	wrongNAT64 := slices.IndexFunc(config.NAT64, func(prefix netip.Prefix) bool { return !isTranslation(prefix) })
	switch {
	case err != nil:
		return nil, err
	case tooWide >= 0:
		return nil, bad(fmt.Sprintf("Trusted[%d]", tooWide), config.Trusted[tooWide],
			"a prefix of 7 bits or more that has the proxies alone, since any client in it chooses its address; or Hops, if their addresses are not known")
	case config.Hops < 0 || config.Hops > MaxHops:
		return nil, bad("Hops", config.Hops, "1 to 256, or 0 to use Trusted")
	case config.Header == "" && config.Hops > 0:
		return nil, bad("Header", `""`, "the field that the proxies write, as Hops is given")
	case config.Header == "" && trusted != nil:
		return nil, bad("Header", `""`, "the field that the proxies write, as Trusted is given")
	case config.Header != "" && !IsToken(config.Header):
		return nil, bad("Header", fmt.Sprintf("%q", config.Header), "the name of a header field, such as "+pkg+".XForwardedFor")
	case config.Header != "" && config.Hops == 0 && trusted == nil:
		return nil, bad("Trusted", "empty", "the prefixes of the proxies that write "+config.Header+", unless Hops is their number")
	case config.Hops > 0 && trusted != nil:
		return nil, bad("Hops", config.Hops, "0, as Trusted is given")
	case config.IPv4Prefix < 0 || config.IPv4Prefix > wholeIPv4:
		return nil, bad("IPv4Prefix", config.IPv4Prefix, "1 to 32, or 0 for 32")
	case config.IPv6Prefix < 0 || config.IPv6Prefix > 128:
		return nil, bad("IPv6Prefix", config.IPv6Prefix, "1 to 128, or 0 for 64")
	case wrongNAT64 >= 0:
		return nil, bad(fmt.Sprintf("NAT64[%d]", wrongNAT64), config.NAT64[wrongNAT64],
			"an IPv6 prefix of 32, 40, 48, 56, 64 or 96 bits")
	}
	finder := &Finder{
		header:  http.CanonicalHeaderKey(config.Header),
		last:    lastOf,
		parse:   Parse,
		trusted: trusted,
		hops:    config.Hops,
		v4:      cmp.Or(config.IPv4Prefix, wholeIPv4),
		v6:      cmp.Or(config.IPv6Prefix, DefaultIPv6Prefix),
		nat64:   longestFirst(config.NAT64),
	}
	if finder.header == forwarded {
		finder.last = lastForwarded
		finder.parse = func(element string) netip.Addr { return Parse(nodeOf(element)) }
	}
	return finder, nil
}

// Valid reports whether New made f.
func (f *Finder) Valid() bool { return f.last != nil }

// Header returns the proxies' field in the canonical form of net/http, or "" if none is read.
func (f *Finder) Header() string { return f.header }

// ReadsPeer reports whether an answer depends on the address of the connection.
func (f *Finder) ReadsPeer() bool { return f.hops == 0 }

// Trusts reports whether peer's Header is read. If not, peer is the client.
func (f *Finder) Trusts(peer netip.Addr) bool {
	switch {
	case f.header == "":
		return false
	case f.hops > 0:
		return true
	}
	return peer.IsValid() && f.trusted.Contains(peer)
}

// Behind returns the client's address by the lines of the Header, if Trusts reports true.
func (f *Finder) Behind(peer netip.Addr, lines []string) netip.Addr {
	if f.hops > 0 {
		return f.behind(lines)
	}
	return f.untrusted(peer, lines)
}

// Cut returns an address's key: the address, or an IPv4 address embedded in it, cut to the prefix.
func (f *Finder) Cut(addr netip.Addr) netip.Addr {
	bits := f.v4
	if addr.Is6() {
		if v4 := f.translated(addr); v4.IsValid() {
			addr = v4
		} else {
			bits = f.v6
		}
	}
	if bits == addr.BitLen() {
		return addr
	}
	// New checks the bits, so there is no error.
	prefix, _ := addr.Prefix(bits)
	return prefix.Addr()
}

func (f *Finder) behind(lines []string) netip.Addr {
	hops := f.hops
	for i := len(lines) - 1; i >= 0; i-- {
		for rest, more := lines[i], true; more; hops-- {
			var element string
			if rest, element, more = f.last(rest); hops == 1 {
				return f.parse(element)
			}
		}
	}
	return netip.Addr{}
}

// untrusted returns the rightmost untrusted address, else the leftmost, else addr.
func (f *Finder) untrusted(addr netip.Addr, lines []string) netip.Addr {
	hops := 0
	for i := len(lines) - 1; i >= 0; i-- {
		for rest, more := lines[i], true; more; hops++ {
			if hops == MaxHops {
				return netip.Addr{}
			}
			var element string
			rest, element, more = f.last(rest)
			if addr = f.parse(element); !addr.IsValid() || !f.trusted.Contains(addr) {
				return addr
			}
		}
	}
	return addr
}
