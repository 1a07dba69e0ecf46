package httplimit

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/internal/adapter/clientaddr"
	"github.com/ral-limiter/ral/policy"
)

// Each line has the connection's address, the field's lines, and the client's address, "-" if none.
//
// Promise: Client addresses are found as configured; no other header is trusted.
func TestClientAddrIsFoundAsConfigured(t *testing.T) {
	for _, c := range spoofs {
		config := AddrConfig{Header: c.header, Hops: c.hops}
		if c.header != "" && c.hops == 0 {
			config.Trusted = spoofProxies
		}
		a := clientAddr(t, config)
		want := netip.Addr{}
		if c.want != "-" {
			want = netip.MustParseAddr(c.want)
		}
		assert.Equal(t, want, a.Addr(c.request()), c.what)
	}
}

func TestAddressKeyIsCutToItsPrefix(t *testing.T) {
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

// Promise: No configuration trusts all addresses as proxies.
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
	for _, wide := range prefixList("0.0.0.0/0", "::/0", "0.0.0.0/1", "2000::/3", "::ffff:0:0/96", "::ffff:0:0/90") {
		_, err := NewClientAddr(AddrConfig{Header: XForwardedFor, Trusted: []netip.Prefix{inside[0], wide}})
		refusedBy(t, err, "httplimit.AddrConfig", "Trusted[1]")
		assert.ErrorContains(t, err, "Trusted[1] is "+wide.String()+", want a prefix of 7 bits or more")
	}
	for _, narrow := range prefixList("10.0.0.0/8", "fc00::/7", "::ffff:10.0.0.0/104") {
		_, err := NewClientAddr(AddrConfig{Header: XForwardedFor, Trusted: []netip.Prefix{narrow}})
		assert.NoError(t, err)
	}
	_, err := NewClientAddr(AddrConfig{Header: Forwarded, Trusted: inside, Hops: 1})
	refusedBy(t, err, "httplimit.AddrConfig", "Hops")
	_, err = NewClientAddr(AddrConfig{Header: Forwarded, Hops: clientaddr.MaxHops + 1})
	refusedBy(t, err, "httplimit.AddrConfig", "Hops")
	for _, bits := range []int{-1, 33} {
		_, err = NewClientAddr(AddrConfig{IPv4Prefix: bits})
		refusedBy(t, err, "httplimit.AddrConfig", "IPv4Prefix")
	}
	_, err = NewClientAddr(AddrConfig{IPv6Prefix: -1})
	refusedBy(t, err, "httplimit.AddrConfig", "IPv6Prefix")
}

// Promise: An IPv4 client behind a translator has its own key.
func TestKeyOfTranslatedAddress(t *testing.T) {
	local := AddrConfig{NAT64: prefixList("64:ff9b:1:fffe::/96", "2001:db8:122::/48")}
	overlapping := AddrConfig{NAT64: prefixList("64:ff9b:1::/48", "64:ff9b:1:fffe::/96", "64:ff9b::/32")}
	whole := AddrConfig{IPv6Prefix: 128}
	for _, c := range []struct {
		config     AddrConfig
		peer, want string
	}{
		{AddrConfig{}, "[64:ff9b::8.8.4.4]:1", "8.8.4.4"},
		{AddrConfig{}, "[64:ff9b::808:404%eth0]:1", "8.8.4.4"},
		{whole, "[64:ff9b::8.8.4.4]:1", "8.8.4.4"},
		// The well-known prefix has 96 bits.
		{AddrConfig{}, "[64:ff9b::1:808:404]:1", "64:ff9b::"},
		{AddrConfig{}, "[64:ff9c::8.8.4.4]:1", "64:ff9c::"},
		// Translators must not use it for these: a client made the address up.
		{AddrConfig{}, "[64:ff9b::127.0.0.1]:1", "64:ff9b::"},
		{AddrConfig{}, "[64:ff9b::10.0.0.1]:1", "64:ff9b::"},
		{AddrConfig{}, "[64:ff9b::100.64.0.1]:1", "64:ff9b::"},
		{AddrConfig{}, "[64:ff9b::192.0.2.1]:1", "64:ff9b::"},
		{AddrConfig{}, "[64:ff9b::224.0.0.1]:1", "64:ff9b::"},
		{AddrConfig{}, "[64:ff9b::255.255.255.255]:1", "64:ff9b::"},
		{AddrConfig{}, "[64:ff9b::]:1", "64:ff9b::"},
		{whole, "[64:ff9b::10.0.0.1]:1", "64:ff9b::a00:1"},
		// A configured local prefix counts for any address.
		{AddrConfig{}, "[64:ff9b:1:fffe::8.8.4.4]:1", "64:ff9b:1:fffe::"},
		{local, "[64:ff9b:1:fffe::8.8.4.4]:1", "8.8.4.4"},
		{local, "[64:ff9b:1:fffe::10.0.0.1]:1", "10.0.0.1"},
		{local, "[64:ff9b:1:ffff::10.0.0.1]:1", "64:ff9b:1:ffff::"},
		{local, "[64:ff9b::8.8.4.4]:1", "8.8.4.4"},
		{local, "[64:ff9b::10.0.0.1]:1", "64:ff9b::"},
		{AddrConfig{NAT64: prefixList("64:ff9b::/96")}, "[64:ff9b::10.0.0.1]:1", "10.0.0.1"},
		// The examples of RFC 6052, section 2.4.
		{AddrConfig{NAT64: prefixList("2001:db8::/32")}, "[2001:db8:c000:221::]:1", "192.0.2.33"},
		{AddrConfig{NAT64: prefixList("2001:db8:100::/40")}, "[2001:db8:1c0:2:21::]:1", "192.0.2.33"},
		{local, "[2001:db8:122:c000:2:2100::]:1", "192.0.2.33"},
		{AddrConfig{NAT64: prefixList("2001:db8:122:300::/56")}, "[2001:db8:122:3c0:0:221::]:1", "192.0.2.33"},
		{AddrConfig{NAT64: prefixList("2001:db8:122:344::/64")}, "[2001:db8:122:344:c0:2:2100:0]:1", "192.0.2.33"},
		{AddrConfig{NAT64: prefixList("2001:db8:122:344::/96")}, "[2001:db8:122:344::192.0.2.33]:1", "192.0.2.33"},
		// The longest of overlapping prefixes counts, in any order.
		{overlapping, "[64:ff9b:1:fffe::8.8.4.4]:1", "8.8.4.4"},
		{overlapping, "[64:ff9b:1:808:4:400::]:1", "8.8.4.4"},
		// Bits that translators ignore make no key of their own.
		{local, "[2001:db8:122:c000:ff02:21ff:ffff:ffff]:1", "192.0.2.33"},
		// Teredo, 6to4 and IPv4-compatible addresses are IPv6.
		{AddrConfig{}, "[2001:0:4136:e378:8000:63bf:3fff:fdd2]:1", "2001:0:4136:e378::"},
		{AddrConfig{}, "[2002:808:404:1::1]:1", "2002:808:404:1::"},
		{AddrConfig{}, "[::8.8.4.4]:1", "::"},
		{AddrConfig{}, "[::ffff:8.8.4.4]:1", "8.8.4.4"},
	} {
		key := clientAddr(t, c.config).Key(from(c.peer))
		assert.Equal(t, netip.MustParseAddr(c.want), key, "%v", c)
	}
	assert.Equal(t, netip.MustParseAddr("8.8.4.4"), ByAddr(from("[64:ff9b::8.8.4.4]:1")))
}

// Promise: An embedded IPv4 address grants no trust.
func TestEmbeddedAddressIsNotTrusted(t *testing.T) {
	limiter := open[netip.Addr](t, policy.Must(policy.Funnel(1, 1, time.Hour)))
	addr := clientAddr(t, AddrConfig{
		Header: XForwardedFor, Trusted: prefixList("8.8.4.4/32", "10.0.0.0/8", "127.0.0.0/8"), NAT64: prefixList("64:ff9b:1::/96"),
	})
	o := Options{ClientAddr: addr, Allow: prefixList("8.8.4.4/32", "10.0.0.0/8", "127.0.0.0/8")}
	h := Must(New(limiter, addr.Key, o)).Handler(done)
	for _, peer := range []string{"[64:ff9b::8.8.4.4]:1", "[64:ff9b:1::10.0.0.1]:1", "[64:ff9b::127.0.0.1]:1"} {
		assert.Equal(t, 200, ask(h, from(peer, "X-Forwarded-For", "6.6.6.6")).Code, peer)
		assert.Equal(t, 429, ask(h, from(peer, "X-Forwarded-For", "7.7.7.7")).Code, peer)
	}
	assert.Equal(t, netip.MustParseAddr("64:ff9b::8.8.4.4"), addr.Addr(from("[64:ff9b::8.8.4.4]:1")))

	// A prefix that is denied as IPv6 stays denied.
	h = Must(New(limiter, ByAddr, Options{Deny: prefixList("64:ff9b::/96")})).Handler(done)
	assert.Equal(t, 403, ask(h, from("[64:ff9b::9.9.9.9]:1")).Code)
}

func TestKeyOfTranslatedAddressBehindProxy(t *testing.T) {
	addr := clientAddr(t, AddrConfig{Header: XForwardedFor, Hops: 1})
	assert.Equal(t, netip.MustParseAddr("8.8.4.4"), addr.Key(from("10.0.0.1:1", "X-Forwarded-For", "6.6.6.6, 64:ff9b::808:404")))
}

func TestNAT64PrefixesAreChecked(t *testing.T) {
	for _, prefix := range []netip.Prefix{
		{}, netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("64:ff9b:1::/50"), netip.MustParsePrefix("64:ff9b:1::/128"),
		netip.MustParsePrefix("::ffff:10.0.0.0/96"), netip.MustParsePrefix("10.0.0.0/32"),
	} {
		_, err := NewClientAddr(AddrConfig{NAT64: []netip.Prefix{netip.MustParsePrefix("64:ff9b:1::/48"), prefix}})
		refusedBy(t, err, "httplimit.AddrConfig", "NAT64[1]")
	}
	list := prefixList("64:ff9b:1::/96")
	addr := clientAddr(t, AddrConfig{NAT64: list})
	list[0] = netip.MustParsePrefix("2001:db8::/96")
	assert.Equal(t, netip.MustParseAddr("8.8.4.4"), addr.Key(from("[64:ff9b:1::8.8.4.4]:1")), "the caller's slice is copied")
}

// No IPv6 address gives the key of an IPv4 address that is not public, unless configured.
func FuzzKeyOfAddress(f *testing.F) {
	for _, seed := range []string{"64:ff9b::808:404", "64:ff9b::7f00:1", "64:ff9b:1::1", "2001:db8::1", "::", "2002:a00:1::"} {
		b := netip.MustParseAddr(seed).As16()
		f.Add(b[:])
	}
	c := connection
	f.Fuzz(func(t *testing.T, b []byte) {
		var all [16]byte
		copy(all[:], b)
		addr := netip.AddrFrom16(all)
		if addr.Is4In6() {
			return
		}
		key := c.Key(from("[" + addr.String() + "]:1"))
		switch {
		case !key.IsValid() && !addr.IsUnspecified():
			t.Fatalf("%v has no key", addr)
		case key.Is4() && (!netip.MustParsePrefix("64:ff9b::/96").Contains(addr) || !key.IsGlobalUnicast() || key.IsPrivate()):
			t.Fatalf("%v has the key %v", addr, key)
		case key.Is6() && netip.PrefixFrom(key, 64) != netip.PrefixFrom(addr, 64).Masked():
			t.Fatalf("%v has the key %v", addr, key)
		}
	})
}
