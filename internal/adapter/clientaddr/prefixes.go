package clientaddr

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/ral-limiter/ral/policy"
)

// Prefixes is a set of prefixes, nil if empty. A lookup costs a map lookup for each prefix length.
type Prefixes struct {
	all map[netip.Prefix]struct{}
	// v4 and v6 are the lengths in the set.
	v4, v6 []int
}

// NewPrefixes returns the set of list, or a *policy.FieldError.
func NewPrefixes(owner, field string, list []netip.Prefix) (*Prefixes, error) {
	if len(list) == 0 {
		return nil, nil
	}
	prefixes := &Prefixes{all: map[netip.Prefix]struct{}{}}
	for i, prefix := range list {
		if addr := prefix.Addr(); addr.Is4In6() && prefix.Bits() >= 96 {
			prefix = netip.PrefixFrom(addr.Unmap(), prefix.Bits()-96)
		}
		if !prefix.IsValid() {
			return nil, &policy.FieldError{
				Of: owner, Field: fmt.Sprintf("%s[%d]", field, i), Value: list[i],
				Want: "a valid prefix, such as netip.MustParsePrefix returns",
			}
		}
		lengths := &prefixes.v6
		if prefix.Addr().Is4() {
			lengths = &prefixes.v4
		}
		if !slices.Contains(*lengths, prefix.Bits()) {
			*lengths = append(*lengths, prefix.Bits())
		}
		prefixes.all[prefix.Masked()] = struct{}{}
	}
	return prefixes, nil
}

// minTrusted is the least number of bits of a prefix of proxies. The widest private network is fc00::/7.
const minTrusted = 7

// IsTooWide reports whether clients have addresses in a prefix that should have only a proxy's.
func IsTooWide(prefix netip.Prefix) bool {
	bits := prefix.Bits()
	if prefix.Addr().Is4In6() {
		bits -= 96
	}
	return bits < minTrusted
}

// ParsePrefix parses a prefix, or an address as the prefix of it alone.
func ParsePrefix(text string) (netip.Prefix, error) {
	prefix, err := netip.ParsePrefix(text)
	if err == nil {
		return prefix, nil
	}
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Prefix{}, err
	}
	return addr.Prefix(addr.BitLen())
}

// Contains reports whether addr, unmapped and without a zone, is in a prefix.
func (p *Prefixes) Contains(addr netip.Addr) bool {
	if p == nil {
		return false
	}
	lengths := p.v6
	if addr.Is4() {
		lengths = p.v4
	}
	for _, bits := range lengths {
		prefix, err := addr.Prefix(bits)
		if _, in := p.all[prefix]; in && err == nil {
			return true
		}
	}
	return false
}
