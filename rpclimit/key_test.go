package rpclimit

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/limits"
)

// Promise: Metadata gives client addresses only through trusted proxies.
//
// Promise: Metadata forges no address.
func TestSpoofedAddressIsNotRead(t *testing.T) {
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	proxy := netip.MustParseAddr("10.0.0.1")
	for _, c := range []struct {
		config AddrConfig
		call   *Call
		want   string
	}{
		{AddrConfig{}, from(alice, "x-forwarded-for", "203.0.113.9"), "192.0.2.1"},
		{AddrConfig{Header: "X-Forwarded-For", Trusted: trusted}, from(alice, "x-forwarded-for", "203.0.113.9"), "192.0.2.1"},
		{AddrConfig{Header: "X-Forwarded-For", Trusted: trusted}, from(proxy, "x-forwarded-for", "203.0.113.9"), "203.0.113.9"},
		{AddrConfig{Header: "x-forwarded-for", Trusted: trusted}, from(proxy, "x-forwarded-for", "6.6.6.6, 203.0.113.9"), "203.0.113.9"},
		{AddrConfig{Header: "Forwarded", Trusted: trusted}, from(proxy, "forwarded", `for=6.6.6.6, for="[2001:db8:1:2:3::4]:80"`), "2001:db8:1:2::"},
		{AddrConfig{Header: "X-Forwarded-For", Hops: 2}, from(netip.Addr{}, "x-forwarded-for", "6.6.6.6, 203.0.113.9", "x-forwarded-for", "10.1.1.1"), "203.0.113.9"},
		{AddrConfig{Header: "X-Forwarded-For", Hops: 1}, &Call{Context: context.Background(), Peer: proxy}, "invalid IP"},
		{AddrConfig{IPv4Prefix: 24}, from(alice), "192.0.2.0"},
		{AddrConfig{IPv6Prefix: 48}, from(netip.MustParseAddr("2001:db8:1:2::3")), "2001:db8:1::"},
	} {
		a, err := NewClientAddr(c.config)
		require.NoError(t, err)
		assert.Equal(t, c.want, a.Key().Of(c.call).String(), "%+v", c.config)
	}
	_, err := NewClientAddr(AddrConfig{Header: "X-Forwarded-For"})
	refusedBy(t, err, "rpclimit.AddrConfig", "Trusted")
	assert.Equal(t, "2001:db8:1:2::", ByAddr.Of(from(netip.MustParseAddr("2001:db8:1:2::3"))).String())
}

func TestPeerIsTheAddressOfTheConnection(t *testing.T) {
	tcp := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 80, Zone: "eth0"} }
	for want, addr := range map[string]net.Addr{"192.0.2.1": tcp("192.0.2.1"), "2001:db8::1": tcp("2001:db8::1")} {
		assert.Equal(t, want, PeerOf(addr).String())
	}
	assert.Equal(t, alice, PeerOf(&net.UDPAddr{IP: net.ParseIP("192.0.2.1"), Port: 80}))
	for _, none := range []net.Addr{nil, (*net.TCPAddr)(nil), &net.UnixAddr{Name: "/run/socket"}, &net.TCPAddr{}} {
		assert.False(t, PeerOf(none).IsValid(), "%v", none)
	}
	assert.Equal(t, alice, ParsePeer("192.0.2.1:4711"))
	assert.False(t, ParsePeer("pipe").IsValid())
}

func TestKeyComesFromItsPartOfTheCall(t *testing.T) {
	type user struct{}
	c := from(alice, "x-tenant", " blue ", "x-tenant", "red", "long", strings.Repeat("l", 65))
	c.Identity, c.Message = "root", 7
	c.Context = context.WithValue(c.Context, user{}, "carol")
	name := func(ctx context.Context) string { s, _ := ctx.Value(user{}).(string); return s }
	for _, k := range []struct {
		key  Key[string]
		by   string
		want string
	}{
		{ByMetadata("X-TENANT"), "metadata x-tenant", "blue"},
		{ByMetadata("none"), "metadata none", ""},
		{ByProcedure, "method", "/shop.Orders/Place"},
		{ByService, "service", "shop.Orders"},
		{ByIdentity(func(id any) string { return id.(string) }), "identity", "root"},
		{ByContext(name), "identity", "carol"},
		{ByMessage(func(n int) string { return strings.Repeat("m", n) }), "message", "mmmmmmm"},
		{ByMessage(func(n string) string { return "never" }), "message", ""},
	} {
		assert.Equal(t, k.want, k.key.Of(c), k.by)
		assert.Equal(t, k.by, k.key.By)
		assert.Equal(t, k.by == "message", k.key.OfMessage)
	}
	long := ByMetadata("long").Of(c)
	assert.Len(t, long, 33, "a hash")
	assert.Zero(t, long[0])
	both := Both(ByMetadata("x-tenant"), ByService)
	assert.Equal(t, limits.Pair[string, string]{A: "blue", B: "shop.Orders"}, both.Of(c))
	assert.Equal(t, "metadata x-tenant, service", both.By)
	assert.Zero(t, Both(ByService, ByMetadata("none")).Of(c), "half a key is none")
	assert.True(t, Both(ByService, ByMessage(func(n int) int { return n })).OfMessage)
	assert.Nil(t, Both(ByService, Key[string]{}).Of)
	assert.Nil(t, ByMessage[int, int](nil).Of)
	assert.Nil(t, ByIdentity[int](nil).Of)
	assert.Nil(t, ByContext[int](nil).Of)

	var empty Call
	assert.Empty(t, ByMetadata("x-tenant").Of(&empty))
	assert.Empty(t, ByIdentity(func(any) string { return "never" }).Of(&empty))
	assert.Equal(t, "203.0.113.9", ByMetadata("x-real-ip").Of(&Call{Header: canonical{"X-Real-Ip": {"203.0.113.9"}}}))
}

// canonical has metadata by names in the form of net/http.
type canonical http.Header

func (h canonical) Values(_, canonical string) []string { return h[canonical] }
