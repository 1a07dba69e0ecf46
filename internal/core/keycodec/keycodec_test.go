package keycodec_test

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/ral-limiter/ral/internal/core/keycodec"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type (
	User  string
	Route int16
	Flag  bool
	Both  struct {
		User  User
		Route Route
	}
	Nested struct {
		Both
		On    Flag
		At    netip.AddrPort
		Net   netip.Prefix
		From  netip.Addr
		Names [2]string
		Hash  [16]byte
		Count uint
		Since Celsius
	}
	// Celsius has its own bytes.
	Celsius struct{ degrees int32 }
	// Lossy loses the lowest bit.
	Lossy struct{ n byte }
	// Faulty always fails.
	Faulty struct{ n byte }
)

func (c Celsius) MarshalBinary() ([]byte, error) { return fmt.Appendf(nil, "%d°", c.degrees), nil }

func (c *Celsius) UnmarshalBinary(b []byte) error {
	text, ok := strings.CutSuffix(string(b), "°")
	if !ok {
		return errors.New("no °")
	}
	if _, err := fmt.Sscanf(text, "%d", &c.degrees); err != nil {
		return err
	}
	if fmt.Sprint(c.degrees) != text {
		return errors.New("not as MarshalBinary writes it")
	}
	return nil
}

func (l Lossy) MarshalBinary() ([]byte, error) { return []byte{l.n &^ 1}, nil }

func (l *Lossy) UnmarshalBinary(b []byte) error {
	l.n = b[0]
	// The argument is the method's own.
	b[0] = 0xff
	return nil
}

func (f Faulty) MarshalBinary() ([]byte, error) {
	if f.n == 0 {
		return nil, errors.New("zero")
	}
	return []byte{f.n}, nil
}

func (f *Faulty) UnmarshalBinary([]byte) error { return errors.New("never") }

// codecOf returns the codec of a type, which must have that name.
func codecOf[K comparable](t testing.TB, name string) keycodec.Codec[K] {
	t.Helper()
	c := must.Get(keycodec.For[K]())
	require.Equal(t, name, c.Name())
	return c
}

// roundTrip requires that keys have different bytes and come back.
func roundTrip[K comparable](t testing.TB, name string, keys ...K) {
	t.Helper()
	c := codecOf[K](t, name)
	seen := map[string]K{}
	for _, key := range keys {
		b := must.Get(c.Append([]byte("before"), key))
		require.Equal(t, "before", string(b[:6]))
		b = b[6:]
		got, err := c.Decode(b)
		require.NoError(t, err, "%v", key)
		require.Equal(t, key, got)
		if other, taken := seen[string(b)]; taken {
			require.Equal(t, key, other, "both are %q", b)
		}
		seen[string(b)] = key
		clear(b)
		require.Equal(t, key, got, "the key is a part of what was decoded")
		// Longer bytes are no key, or another key.
		b = must.Get(c.Append(nil, key))
		for n := range b {
			if got, err := c.Decode(b[:n]); err == nil {
				require.NotEqual(t, key, got)
			}
		}
	}
}

func TestKeysComeBack(t *testing.T) {
	addrs := []netip.Addr{{}}
	var prefixes []netip.Prefix
	var ports []netip.AddrPort
	for _, text := range []string{
		"0.0.0.0", "192.0.2.1", "::", "::1", "2001:db8::1", "::ffff:192.0.2.1", "fe80::1%eth0", "fe80::1%1", "::ffff:192.0.2.1%z",
	} {
		addrs = append(addrs, netip.MustParseAddr(text))
	}
	for _, a := range addrs {
		for _, bits := range []int{-1, 0, 8, 32, 33, 127, 128, 129} {
			prefixes = append(prefixes, netip.PrefixFrom(a, bits))
		}
		for _, port := range []uint16{0, 80, 443, 65535} {
			ports = append(ports, netip.AddrPortFrom(a, port))
		}
	}
	roundTrip(t, "string", "", "a", "alice", "\x00", "ü", "\xff", strings.Repeat("k", 300))
	roundTrip[User](t, "string", "", "alice")
	roundTrip[int8](t, "int8", 0, 1, -1, math.MaxInt8, math.MinInt8)
	roundTrip[int16](t, "int16", 0, 1, -1, math.MaxInt16, math.MinInt16)
	roundTrip[int32](t, "int32", 0, 1, -1, math.MaxInt32, math.MinInt32)
	roundTrip[int](t, "int64", 0, 1, -1, math.MaxInt, math.MinInt)
	roundTrip[uint8](t, "uint8", 0, 1, math.MaxUint8)
	roundTrip[uint16](t, "uint16", 0, 1, math.MaxUint16)
	roundTrip[uint32](t, "uint32", 0, 1, math.MaxUint32)
	roundTrip[uint64](t, "uint64", 0, 1, math.MaxUint64)
	roundTrip[uint](t, "uint64", 0, 1, math.MaxUint)
	roundTrip[Route](t, "int16", 0, -5)
	roundTrip[time.Duration](t, "int64", 0, time.Hour)
	roundTrip(t, "bool", false, true)
	roundTrip[Flag](t, "bool", false, true)
	roundTrip(t, "netip.Addr", addrs...)
	roundTrip(t, "netip.Prefix", prefixes...)
	roundTrip(t, "netip.AddrPort", ports...)
	roundTrip(t, "[16]uint8", [16]byte{}, [16]byte{15: 1})
	roundTrip(t, "[0]uint8", [0]byte{})
	roundTrip(t, "[2]string", [2]string{}, [2]string{"a", "bc"}, [2]string{"ab", "c"}, [2]string{"abc", ""})
	roundTrip(t, "[2][3]int16", [2][3]int16{{1, 2, 3}, {4, 5, 6}}, [2][3]int16{{1, 2, 3}, {4, 6, 5}})
	roundTrip(t, "struct{}", struct{}{})
	roundTrip(t, "struct{User string; Route int16}", Both{}, Both{"alice", 1}, Both{"alice", -1}, Both{"", 1})
	const own = "github.com/ral-limiter/ral/internal/core/keycodec_test"
	roundTrip(t, "binary "+own+".Celsius", Celsius{}, Celsius{-40}, Celsius{100})
	roundTrip(t, "binary time.Time", time.Time{}, time.Unix(1, 2).UTC())

	const nested = "struct{Both struct{User string; Route int16}; On bool; At netip.AddrPort; Net netip.Prefix; From netip.Addr; " +
		"Names [2]string; Hash [16]uint8; Count uint64; Since binary " + own + ".Celsius}"
	full := Nested{Both{"alice", 7}, true, ports[4], prefixes[9], addrs[7], [2]string{"x", "yz"}, [16]byte{1}, 9, Celsius{21}}
	keys := []Nested{{}, full}
	for _, change := range []func(*Nested){
		func(n *Nested) { n.User = "alic" }, func(n *Nested) { n.Route = 8 }, func(n *Nested) { n.On = false },
		func(n *Nested) { n.At = ports[5] }, func(n *Nested) { n.Net = prefixes[10] }, func(n *Nested) { n.From = addrs[8] },
		func(n *Nested) { n.Names = [2]string{"xy", "z"} }, func(n *Nested) { n.Hash[15] = 1 }, func(n *Nested) { n.Count = 10 },
		func(n *Nested) { n.Since.degrees = 22 },
	} {
		other := full
		change(&other)
		keys = append(keys, other)
	}
	roundTrip(t, nested, keys...)
}

// Users' files have these bytes.
func TestBytesAreAlwaysTheSame(t *testing.T) {
	type bought struct {
		On   bool
		Last Celsius
	}
	for want, got := range map[string]string{
		"alice":                            bytesOf(t, "string", "alice"),
		"\xff\xff\xff\xff\xff\xff\xff\xfe": bytesOf(t, "int64", -2),
		"\x04\xc0\x00\x02\x01":             bytesOf(t, "netip.Addr", netip.MustParseAddr("192.0.2.1")),
		"\x07\xfe\x80" + strings.Repeat("\x00", 13) + "\x01eth0": bytesOf(t, "netip.Addr", netip.MustParseAddr("fe80::1%eth0")),
		"\x04\xc0\x00\x02\x00\x18":                               bytesOf(t, "netip.Prefix", netip.MustParsePrefix("192.0.2.0/24")),
		"\x04\xc0\x00\x02\x01\x01\xbb":                           bytesOf(t, "netip.AddrPort", netip.MustParseAddrPort("192.0.2.1:443")),
		"\x05alice\x01\x02":                                      bytesOf(t, "struct{User string; Route int16}", Both{"alice", 258}),
		"\x01\x037°": bytesOf(t, "struct{On bool; Last binary github.com/ral-limiter/ral/internal/core/keycodec_test.Celsius}",
			bought{true, Celsius{7}}),
	} {
		assert.Equal(t, want, got)
	}
}

func bytesOf[K comparable](t *testing.T, name string, key K) string {
	t.Helper()
	return string(must.Get(codecOf[K](t, name).Append(nil, key)))
}

func TestTypesWithoutBytesAreRefused(t *testing.T) {
	type hidden struct {
		Name string
		id   int
	}
	type embedsHidden struct{ hidden }
	type blank struct {
		Name string
		_    int
	}
	for name, c := range map[string]struct {
		err  error
		says []string
	}{
		"float":     {errOf[float64](), []string{"type float64", "want strings"}},
		"uintptr":   {errOf[uintptr](), []string{"type uintptr"}},
		"pointer":   {errOf[*string](), []string{"cannot be written to a file: type *string has no bytes that mean the same"}},
		"interface": {errOf[any](), []string{"interface {}"}},
		"channel":   {errOf[chan int](), []string{"chan int"}},
		"hidden":    {errOf[hidden](), []string{"field id of type keycodec_test.hidden is not exported", "MarshalBinary"}},
		"embedded":  {errOf[embedsHidden](), []string{"field hidden of type keycodec_test.embedsHidden"}},
		"blank":     {errOf[blank](), []string{"field _ of type"}},
		"deep": {errOf[struct {
			A [2]struct{ B *int }
		}](), []string{"cannot be written to a file: the part A[i].B is of type *int, which has no bytes that mean the same"}},
		"large": {errOf[struct {
			A, B, C, D [2]struct {
				A, B, C, D [2]struct {
					A, B, C, D, E, F, G, H, I, J, K, L, M, N, O, P struct{ A, B uint64 }
				}
			}
		}](), []string{"want at most 4096"}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Error(t, c.err)
			for _, part := range append(c.says, "cannot be written to a file") {
				assert.ErrorContains(t, c.err, part)
			}
		})
	}
}

func errOf[K comparable]() error {
	_, err := keycodec.For[K]()
	return err
}

// Keys that would collide in a file are refused.
func TestOwnBytesMustBringTheKeyBack(t *testing.T) {
	lossy := must.Get(keycodec.For[Lossy]())
	assert.Equal(t, []byte{2}, must.Get(lossy.Append(nil, Lossy{2})), "UnmarshalBinary changed what was appended")
	_, err := lossy.Append(nil, Lossy{3})
	assert.ErrorContains(t, err, "is another key")
	src := []byte{2}
	must.Get(lossy.Decode(src))
	assert.Equal(t, []byte{2}, src, "Decode changed what it was given")

	faulty := must.Get(keycodec.For[Faulty]())
	_, err = faulty.Append(nil, Faulty{0})
	assert.ErrorContains(t, err, "zero")
	_, err = faulty.Append(nil, Faulty{1})
	assert.ErrorContains(t, err, "never")
	_, err = faulty.Decode([]byte{1})
	assert.ErrorIs(t, err, keycodec.ErrNotAKey)
}

func TestWrongBytesAreRefused(t *testing.T) {
	refused := func(decode func([]byte) error, all ...string) {
		t.Helper()
		for _, b := range all {
			assert.ErrorIs(t, decode([]byte(b)), keycodec.ErrNotAKey, "%q", b)
		}
	}
	refused(decoder[bool](t), "", "\x02", "\x00\x00")
	refused(decoder[int64](t), "", "1234567", "123456789")
	refused(decoder[uint8](t), "", "12")
	refused(decoder[netip.Addr](t), "", "\x01", "\x00\x00", "\x04\x01\x02\x03", "\x04\x01\x02\x03\x04\x05", "\x06"+strings.Repeat("\x00", 15), "\x07"+strings.Repeat("\x00", 16))
	refused(decoder[netip.Prefix](t), "", "\x04\x01\x02\x03\x04", "\x04\x01\x02\x03\x04\x21", "\x00\x00", "\x07"+strings.Repeat("\x00", 16)+"\x01z\x08", "\x04\x01\x02\x03\x04\x08\x08")
	refused(decoder[netip.AddrPort](t), "", "\x04\x01\x02\x03\x04", "\x04\x01\x02\x03\x04\x00", "\x04\x01\x02\x03\x04\x00\x50\x00")
	refused(decoder[[2]string](t), "", "\x01", "\x01a", "\x01a\x02b", "\x01a\x81\x00b", "\x01a\x01bc", "\x01a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01b", strings.Repeat("\xff", 11))
	refused(decoder[[2]byte](t), "", "1", "123")
	refused(decoder[Both](t), "", "\x01a", "\x01a\x00", "\x01a\x00\x00\x00")
	refused(decoder[struct{}](t), "\x00")
	refused(decoder[Celsius](t), "", "7", "07°")
}

func decoder[K comparable](t *testing.T) func([]byte) error {
	c := must.Get(keycodec.For[K]())
	return func(b []byte) error {
		key, err := c.Decode(b)
		var none K
		assert.Equal(t, none, key)
		return err
	}
}

func TestCodecAllocatesNothingButTheKey(t *testing.T) {
	c := codecOf[Both](t, "struct{User string; Route int16}")
	var b []byte
	key := Both{"alice", 3}
	var err error
	assert.LessOrEqual(t, testing.AllocsPerRun(100, func() { b, err = c.Append(b[:0], key) }), 1.0)
	require.NoError(t, err)
	assert.LessOrEqual(t, testing.AllocsPerRun(100, func() { key, err = c.Decode(b) }), 2.0)
	require.NoError(t, err)
}

// canonical requires an error, or a key with exactly these bytes.
func canonical[K comparable](t *testing.T, b []byte) {
	c := must.Get(keycodec.For[K]())
	key, err := c.Decode(b)
	if err != nil {
		require.ErrorIs(t, err, keycodec.ErrNotAKey)
		return
	}
	require.Equal(t, string(b), string(must.Get(c.Append(nil, key))))
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{"", "alice", "\x04\x01\x02\x03\x04\x08", "\x07" + strings.Repeat("\x01", 16) + "\x01z\x01\x02", "\x05alice\x00\x01\x01", "7°"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		canonical[string](t, b)
		canonical[bool](t, b)
		canonical[int32](t, b)
		canonical[uint64](t, b)
		canonical[netip.Addr](t, b)
		canonical[netip.Prefix](t, b)
		canonical[netip.AddrPort](t, b)
		canonical[[3]string](t, b)
		canonical[[4]byte](t, b)
		canonical[Celsius](t, b)
		canonical[Nested](t, b)
		canonical[struct {
			A netip.Addr
			B string
			C bool
		}](t, b)
	})
}

func FuzzKeys(f *testing.F) {
	f.Add("alice", "bob", int64(1), true, []byte{1, 2, 3, 4}, "eth0")
	f.Add("", "a", int64(-1), false, []byte(nil), "")
	f.Fuzz(func(t *testing.T, a, b string, n int64, on bool, addr []byte, zone string) {
		ip, _ := netip.AddrFromSlice(addr)
		ip = ip.WithZone(zone)
		key := Nested{Both{User(a), Route(n)}, Flag(on), netip.AddrPortFrom(ip, uint16(n)), netip.PrefixFrom(ip, int(n%200)), ip,
			[2]string{a, b}, [16]byte{byte(n)}, uint(n), Celsius{int32(n)}}
		other := key
		other.User, other.Names = User(b), [2]string{b, a}
		c := must.Get(keycodec.For[Nested]())
		roundTrip(t, c.Name(), key, other)
	})
}
