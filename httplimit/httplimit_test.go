package httplimit

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

func (huge) Take(uint64, policy.Instant, int64, time.Duration) (uint64, policy.Decision) {
	return 1, policy.Decision{Allowed: true, Limit: 1<<63 - 1, Remaining: 1<<63 - 1, ResetAfter: policy.Never}
}
func (huge) Limit() int64                  { return 1<<63 - 1 }
func (huge) Delays() bool                  { return false }
func (huge) FreshAt(uint64) policy.Instant { return 0 }
func (huge) String() string                { return "huge" }

// Promise: `Allow` and `Deny` come before any state.
func TestAllowAndDenyPrecedeLimits(t *testing.T) {
	limiter := open[netip.Addr](t, policy.Must(policy.FixedWindow(1, time.Hour)))
	proxies := clientAddr(t, AddrConfig{Header: XForwardedFor, Trusted: prefixList("10.0.0.0/8")})
	asked := 0
	m := Must(New(limiter, func(r *http.Request) netip.Addr { asked++; return proxies.Key(r) }, Options{
		ClientAddr: proxies,
		Allow:      prefixList("198.51.100.0/24", "2001:db8::17/128"),
		Deny:       prefixList("203.0.113.0/24", "198.51.100.66/32"),
	}))
	h := m.Handler(done)
	by := func(addr string) int { return ask(h, from("10.0.0.1:1", "X-Forwarded-For", "6.6.6.6, "+addr)).Code }
	for range 3 {
		assert.Equal(t, 200, by("198.51.100.7"))
		assert.Equal(t, 403, by("203.0.113.7"))
		assert.Equal(t, 403, by("198.51.100.66"), "a client in Allow and Deny is not denied")
		assert.Equal(t, 200, by("2001:db8::17"), "compared whole, though keys are cut")
		assert.Equal(t, 400, by("unknown"), "a hidden client may be a denied one")
	}
	assert.Zero(t, limiter.Len())
	assert.Zero(t, asked, "the key of a client in Allow or Deny was looked for")
	assert.Equal(t, 200, by("2001:db8::18"))
	assert.Equal(t, 429, by("2001:db8::19"), "clients of the same 64 bits have different keys")
	s := m.Stats()
	assert.Equal(t, []uint64{1, 6, 1, 6, 3}, []uint64{s.Admitted, s.Exempt, s.OverLimit, s.Denied, s.NoKey})
}

// Promise: `Shadow` only reports refusals and delays.
func TestShadowOnlyReportsRefusals(t *testing.T) {
	limiter := open[netip.Addr](t, policy.Must(policy.FixedWindow(1, time.Hour)))
	var verdicts []limits.Verdict
	m := Must(New(limiter, ByAddr, Options{
		Shadow: true, Deny: prefixList("203.0.113.0/24"), WaitUpTo: time.Minute,
		OnVerdict: func(_ *http.Request, v limits.Verdict) { verdicts = append(verdicts, v) },
		Charge:    func(*http.Request, Served) int64 { return 1 },
	}))
	h := m.Handler(done)
	for _, addr := range []string{alice, alice, "203.0.113.7:1"} {
		w := ask(h, from(addr))
		assert.Equal(t, 200, w.Code)
		assert.Empty(t, w.Header()["Ratelimit"])
		assert.Empty(t, w.Header()["Retry-After"])
	}
	require.Len(t, verdicts, 3)
	for i, want := range []limits.Reason{limits.Admitted, limits.OverLimit, limits.Denied} {
		assert.Equal(t, want, verdicts[i].Reason)
		assert.True(t, verdicts[i].Shadow)
		assert.False(t, verdicts[i].Refused())
		assert.Equal(t, []int{0, 429, 403}[i], Status(want))
	}
	s := m.Stats()
	assert.Equal(t, Stats{Admitted: 1, OverLimit: 1, Denied: 1, Shadow: true, Limits: s.Limits}, s)
}

func TestBadSettingIsRefusedByName(t *testing.T) {
	limiter := open[netip.Addr](t, policy.Must(policy.Funnel(1, 1, time.Second)))
	good := Limit[netip.Addr]{Limiter: limiter, Key: ByAddr}
	named := func(name string) Limit[netip.Addr] {
		return Limit[netip.Addr]{Name: name, Limiter: limiter, Key: ByAddr}
	}
	for field, o := range map[string]Options{
		"Headers":    {Headers: NoHeaders << 1},
		"Inform":     {Inform: "content-length"},
		"WaitUpTo":   {WaitUpTo: -1},
		"Spread":     {Spread: -1},
		"Allow[0]":   {Allow: []netip.Prefix{{}}},
		"Deny[1]":    {Deny: append(prefixList("10.0.0.0/8"), netip.Prefix{})},
		"ClientAddr": {ClientAddr: &ClientAddr{}},
	} {
		_, err := NewAll(o, good)
		refusedBy(t, err, "httplimit.Options", field)
	}
	for _, name := range []string{"na\u00efve", "line\nbreak", strings.Repeat("x", 65)} {
		_, err := New(limiter, ByAddr, Options{Name: name})
		refusedBy(t, err, "httplimit.Options", "Name")
		assert.Less(t, len(err.Error()), 300)
		_, err = NewAll(Options{}, named("fine"), named(name))
		refusedBy(t, err, "httplimit.NewAll", "limits[1].Name")
	}
	_, err := NewAll(Options{Headers: -1}, good)
	refusedBy(t, err, "httplimit.Options", "Headers")
	_, err = NewAll(Options{Headers: NoHeaders | LegacyHeaders}, good)
	refusedBy(t, err, "httplimit.Options", "Headers")
	for field, l := range map[string]Limit[netip.Addr]{
		"Limiter":   {Key: ByAddr},
		"Key":       {Limiter: limiter},
		"WhenNoKey": {Limiter: limiter, Key: ByAddr, WhenNoKey: 3},
	} {
		_, err := NewAll(Options{}, l)
		refusedBy(t, err, "httplimit.NewAll", "limits[0]."+field)
		_, err = NewAll(Options{}, named("fine"), &l)
		refusedBy(t, err, "httplimit.NewAll", "limits[1]."+field)
	}
	_, err = NewAll(Options{})
	refusedBy(t, err, "httplimit.NewAll", "limits")
	_, err = NewAll(Options{}, named("1"), named("2"), named("3"), named("4"), named("5"), named("6"), named("7"), named("8"), named("9"))
	refusedBy(t, err, "httplimit.NewAll", "limits")
	for _, missing := range []AnyLimit{nil, (*Limit[netip.Addr])(nil)} {
		_, err = NewAll(Options{}, good, missing)
		refusedBy(t, err, "httplimit.NewAll", "limits[1]")
	}
	_, err = NewAll(Options{}, good, named("x"), good)
	refusedBy(t, err, "httplimit.NewAll", "limits[2].Name")
	_, err = NewAll(Options{Name: "x"}, named("x"), good)
	refusedBy(t, err, "httplimit.NewAll", "limits[1].Name")
	_, err = New[netip.Addr](nil, ByAddr, Options{})
	assert.EqualError(t, err, "ral: httplimit.New: limiter is nil, want a limiter, such as engine.New returns")
	_, err = New(limiter, nil, Options{})
	refusedBy(t, err, "httplimit.New", "key")
	assert.Panics(t, func() { Must(New[netip.Addr](nil, ByAddr, Options{})) })
	_, err = NewAll(Options{}, named("1"), named("2"), named("3"), named("4"), named("5"), named("6"), named("7"), named("8"))
	assert.NoError(t, err)
}

func TestHandlerPanicsWithoutNext(t *testing.T) {
	m := Must(New(hourly(t, 1), ByAddr, Options{}))
	assert.PanicsWithValue(t, "httplimit: Handler: next is nil, want a handler, such as http.DefaultServeMux", func() { m.Handler(nil) })
}
