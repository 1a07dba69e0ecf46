package clientaddr

import (
	"net/netip"
	"slices"
)

// wellKnown is the translators' prefix for public IPv4 addresses (RFC 6052, section 2.1).
var wellKnown = netip.MustParsePrefix("64:ff9b::/96")

// notPublic lists the IPv4 addresses that must not be embedded in wellKnown (RFC 6052, section
// 3.1), by RFC 5735, section 3, and RFC 6598.
var notPublic, _ = NewPrefixes("", "", []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("10.0.0.0/8"),
	netip.MustParsePrefix("100.64.0.0/10"),
	netip.MustParsePrefix("127.0.0.0/8"),
	netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("172.16.0.0/12"),
	netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("192.0.2.0/24"),
	netip.MustParsePrefix("192.88.99.0/24"),
	netip.MustParsePrefix("192.168.0.0/16"),
	netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("198.51.100.0/24"),
	netip.MustParsePrefix("203.0.113.0/24"),
	netip.MustParsePrefix("224.0.0.0/4"),
	netip.MustParsePrefix("240.0.0.0/4"),
})

// isTranslation reports whether prefix has a length that RFC 6052 defines for translators.
func isTranslation(prefix netip.Prefix) bool {
	if !prefix.IsValid() || !prefix.Addr().Is6() || prefix.Addr().Is4In6() {
		return false
	}
	switch prefix.Bits() {
	case 32, 40, 48, 56, 64, 96:
		return true
	}
	return false
}

func longestFirst(list []netip.Prefix) []netip.Prefix {
	return slices.SortedStableFunc(slices.Values(list), func(a, b netip.Prefix) int { return b.Bits() - a.Bits() })
}

// translated returns the IPv4 address that a translator embedded in addr, or the zero Addr.
func (f *Finder) translated(addr netip.Addr) netip.Addr {
	// The longest prefix comes first.
	for _, prefix := range f.nat64 {
		if prefix.Contains(addr) {
			return embedded(addr, prefix.Bits())
		}
	}
	if wellKnown.Contains(addr) {
		if v4 := embedded(addr, wellKnown.Bits()); !notPublic.Contains(v4) {
			return v4
		}
	}
	return netip.Addr{}
}

// embedded returns the IPv4 address behind a prefix of so many bits (RFC 6052, section 2.2). Bits
// 64 to 71 are skipped, and the bits behind the address ignored.
func embedded(addr netip.Addr, bits int) netip.Addr {
	// reserved is the byte of bits 64 to 71.
	const reserved = 8
	all := addr.As16()
	var v4 [4]byte
	from := bits / 8
	for i := range v4 {
		if from == reserved {
			from++
		}
		v4[i] = all[from]
		from++
	}
	return netip.AddrFrom4(v4)
}
