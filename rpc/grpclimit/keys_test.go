package grpclimit

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/rpclimit"
)

func from(addr string, pairs ...string) context.Context {
	ctx := peer.NewContext(context.Background(), &peer.Peer{Addr: net.TCPAddrFromAddrPort(netip.MustParseAddrPort(addr))})
	return metadata.NewIncomingContext(ctx, metadata.Pairs(pairs...))
}

func TestKeyOfTheCertificate(t *testing.T) {
	intercept := UnaryServerInterceptor(rpclimit.Must(rpclimit.New(rpclimit.Options{}, rpclimit.Limit[string]{
		Limiter: open[string](t, hourly(1), nil),
		Key: rpclimit.ByIdentity(func(identity any) string {
			if of, ok := identity.(credentials.TLSInfo); ok && len(of.State.VerifiedChains) > 0 {
				return of.State.VerifiedChains[0][0].Subject.CommonName
			}
			return ""
		}),
	})))
	try := func(ctx context.Context) error { return direct(ctx, intercept) }
	with := func(name string) context.Context {
		return peer.NewContext(context.Background(), &peer.Peer{AuthInfo: credentials.TLSInfo{State: tls.ConnectionState{
			VerifiedChains: [][]*x509.Certificate{{{Subject: pkix.Name{CommonName: name}}}},
		}}})
	}
	require.NoError(t, try(with("alice")))
	assert.Equal(t, codes.ResourceExhausted, status.Code(try(with("alice"))))
	require.NoError(t, try(with("bob")))
	assert.Equal(t, codes.InvalidArgument, status.Code(try(from("203.0.113.9:1"))), "it is not authenticated")
}

// A call is admitted or refused by its key or for lack of a key, and a long key is bounded.
func FuzzMetadata(f *testing.F) {
	for _, v := range []string{"", "key", "\x00\x01\x7f\xff", "ключ", strings.Repeat("k", 100_000), "  a  ", "a,b"} {
		f.Add(v, v)
	}
	var last string
	key := rpclimit.ByMetadata("x-key")
	of := key.Of
	key.Of = func(c *rpclimit.Call) string {
		last = of(c)
		return last
	}
	proxies, err := rpclimit.NewClientAddr(rpclimit.AddrConfig{Header: "Forwarded", Hops: 1})
	require.NoError(f, err)
	intercept := UnaryServerInterceptor(rpclimit.Must(rpclimit.New(rpclimit.Options{},
		rpclimit.Limit[string]{Name: "key", Limiter: open[string](f, hourly(1), nil), Key: key},
		rpclimit.Limit[netip.Addr]{Name: "address", Limiter: open[netip.Addr](f, hourly(1_000_000), nil), Key: proxies.Key(), WhenNoKey: limits.Share})))
	f.Fuzz(func(t *testing.T, value, forwarded string) {
		last = ""
		err := direct(from("203.0.113.9:1", "x-key", value, "x-key", "other", "forwarded", forwarded), intercept)
		switch code := status.Code(err); {
		case code == codes.InvalidArgument && last == "":
		case code == codes.OK && last != "" && len(last) <= 64:
			if again := direct(from("203.0.113.9:1", "x-key", value), intercept); status.Code(again) != codes.ResourceExhausted {
				t.Fatalf("%q is admitted twice: %v", value, again)
			}
		// The key was seen before.
		case code == codes.ResourceExhausted && last != "" && len(last) <= 64:
		default:
			t.Fatalf("%q, key %q: %v", value, last, err)
		}
	})
}
