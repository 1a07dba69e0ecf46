package httplimit

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/internal/testkit/httpattack"
)

// Each line has the connection's address, the field's lines, and the client's address, "-" if none.
//
// Promise: Client addresses are found as configured; no other header is trusted.
func TestClientAddr(t *testing.T) {
	for _, c := range httpattack.Spoofs {
		config := AddrConfig{Header: c.Header, Hops: c.Hops}
		if c.Header != "" && c.Hops == 0 {
			config.Trusted = httpattack.Proxies
		}
		a := clientAddr(t, config)
		want := netip.Addr{}
		if c.Want != "-" {
			want = netip.MustParseAddr(c.Want)
		}
		assert.Equal(t, want, a.Addr(c.Request()), c.What)
	}
}

func TestKeysOfAddresses(t *testing.T) {
	for _, c := range []struct {
		config     AddrConfig
		peer, want string
	}{
		{AddrConfig{}, "192.0.2.17:1", "192.0.2.17"},
		{AddrConfig{}, "[2001:db8:1:2:3:4:5:6]:1", "2001:db8:1:2::"},
		{AddrConfig{IPv6Prefix: 56}, "[2001:db8:1:2ff:3:4:5:6]:1", "2001:db8:1:200::"},
		{AddrConfig{IPv6Prefix: 128}, "[2001:db8:1:2:3:4:5:6]:1", "2001:db8:1:2:3:4:5:6"},
		{AddrConfig{IPv6Prefix: 1}, "[8001::]:1", "8000::"},
		{AddrConfig{IPv6Prefix: 1}, "[::ffff:192.0.2.17]:1", "192.0.2.17"},
		{AddrConfig{IPv4Prefix: 32}, "192.0.2.17:1", "192.0.2.17"},
		{AddrConfig{IPv4Prefix: 1}, "192.0.2.17:1", "128.0.0.0"},
		{AddrConfig{IPv4Prefix: 24}, "[64:ff9b::8.8.4.4]:1", "8.8.4.0"},
		{AddrConfig{IPv4Prefix: 24}, "[2001:db8:1:2:3:4:5:6]:1", "2001:db8:1:2::"},
	} {
		a := clientAddr(t, c.config)
		assert.Equal(t, netip.MustParseAddr(c.want), a.Key(from(c.peer)), "%v", c)
		assert.Zero(t, a.Key(from("@")))
	}
	assert.Equal(t, netip.MustParseAddr("2001:db8:1:2::"), ByAddr(from("[2001:db8:1:2:3:4:5:6%eth0]:1")))
	assert.Zero(t, ByAddr(from("@")))
}

func TestAddrConfigIsChecked(t *testing.T) {
	inside := prefixList("10.0.0.0/8")
	for field, config := range map[string]AddrConfig{
		"Header":     {Header: "X Forwarded", Hops: 1},
		"Trusted":    {Header: XForwardedFor},
		"Trusted[1]": {Header: XForwardedFor, Trusted: append(inside, netip.Prefix{})},
		"Hops":       {Header: XForwardedFor, Hops: -1},
		"IPv6Prefix": {IPv6Prefix: 129},
	} {
		_, err := NewClientAddr(config)
		refusedBy(t, err, "httplimit.AddrConfig", field)
	}
	for _, config := range []AddrConfig{{Hops: 1}, {Trusted: inside}} {
		_, err := NewClientAddr(config)
		refusedBy(t, err, "httplimit.AddrConfig", "Header")
	}
	_, err := NewClientAddr(AddrConfig{Header: Forwarded, Trusted: inside, Hops: 1})
	refusedBy(t, err, "httplimit.AddrConfig", "Hops")
	_, err = NewClientAddr(AddrConfig{Header: Forwarded, Hops: MaxHops + 1})
	refusedBy(t, err, "httplimit.AddrConfig", "Hops")
	for _, bits := range []int{-1, 33} {
		_, err = NewClientAddr(AddrConfig{IPv4Prefix: bits})
		refusedBy(t, err, "httplimit.AddrConfig", "IPv4Prefix")
	}
	_, err = NewClientAddr(AddrConfig{IPv6Prefix: -1})
	refusedBy(t, err, "httplimit.AddrConfig", "IPv6Prefix")
}
