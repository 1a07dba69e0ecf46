package rpclimit

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/testkit/admissiontest"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/internal/testkit/testenv"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// Promise: Several limits take all or nothing; refusals name them.
func TestSeveralLimitsTakeAllOrNothing(t *testing.T) {
	byAddr, byTenant := admissiontest.Hourly[netip.Addr](t, 5), admissiontest.Hourly[string](t, 3)
	g := Must(New(Options{},
		Limit[netip.Addr]{Name: "address", Limiter: byAddr, Key: ByAddr},
		Limit[string]{Name: "tenant", Limiter: byTenant, Key: ByMetadata("X-Tenant")}))
	for range 3 {
		v, s := g.Begin(from(alice, "x-tenant", "blue"))
		assert.Equal(t, limits.Admitted, v.Reason)
		assert.Nil(t, s, "an admitted call without Charge has a session")
	}
	v, s := g.Begin(from(alice, "x-tenant", "blue"))
	assert.Nil(t, s)
	assert.Equal(t, limits.OverLimit, v.Reason)
	assert.Equal(t, CodeResourceExhausted, v.Code())
	assert.Equal(t, []Violation{{Limit: "tenant", Policy: "window 3/h", By: "metadata x-tenant", Max: 3, Window: time.Hour}}, v.AppendViolations(nil))
	assert.Equal(t, int64(2), byAddr.Peek(alice, 0).Remaining, "a refused call takes nothing")
	policies, standing := rateLimit(&v)
	assert.Equal(t, `"address";q=5;w=3600, "tenant";q=3;w=3600`, policies)
	assert.Regexp(t, `^"tenant";r=0;t=\d+$`, standing)
	assert.Regexp(t, `^the limit "tenant" is exceeded: try again in `, v.Message())
	assert.NotContains(t, v.Message(), "blue")
}

func TestReasonDecidesCodeAndMessage(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	late, done := context.WithDeadline(context.Background(), time.Now().Add(-time.Hour))
	defer done()
	e := admissiontest.Hourly[netip.Addr](t, 2)
	g := Must(New(Options{Cost: func(c *Call) int64 { return c.Message.(int64) }}, Limit[netip.Addr]{Limiter: e, Key: ByAddr}))
	with := func(n int64, c *Call) *Call {
		c.Message = n
		return c
	}
	down := admissiontest.NewFake[netip.Addr](t, 2, policy.Decision{RetryAfter: time.Second}, limits.SourceClosed, false)
	closed := Must(New(Options{}, Limit[netip.Addr]{Limiter: down, Key: ByAddr}))
	misfit := Must(New(Options{}, Limit[netip.Addr]{Limiter: e, Key: ByAddr, PolicyFor: func(*Call) policy.Policy { return policy.Must(policy.Funnel(1, 1, time.Second)) }}))
	for _, c := range []struct {
		l       *Guard
		call    *Call
		reason  limits.Reason
		code    Code
		text    string
		retries int64
	}{
		{g, with(1, from(alice)), limits.Admitted, CodeOK, "", 0},
		{g, with(9, &Call{Context: context.Background(), Procedure: "/grpc.health.v1.Health/Check"}), limits.Exempt, CodeOK, "", 0},
		{g, with(2, from(alice)), limits.OverLimit, CodeResourceExhausted, `the limit "default" is exceeded: try again in `, 1},
		{g, with(1, from(netip.Addr{})), limits.NoKey, CodeInvalidArgument, `the call lacks the key of the limit "default"`, 0},
		{g, with(3, from(alice)), limits.NeverAdmitted, CodeResourceExhausted, `the limit "default" never admits this call, which costs 3: the most that it allows is 2`, -1},
		{g, with(-1, from(alice)), limits.Misconfigured, CodeInternal, "the server is misconfigured: the call's cost is below 0", 0},
		{g, with(1, &Call{Context: ended, Procedure: place, Peer: bob}), limits.Cancelled, CodeCanceled, "the call was cancelled", 0},
		{g, with(1, &Call{Context: late, Procedure: place, Peer: bob}), limits.Cancelled, CodeDeadlineExceeded, "the call's deadline has passed", 0},
		{misfit, from(alice), limits.Misconfigured, CodeInternal, `the server is misconfigured: the limit "default" cannot be applied to this client`, 0},
		{closed, from(alice), limits.Unavailable, CodeUnavailable, `the limit "default" cannot be decided now`, 0},
	} {
		v, _ := c.l.Begin(c.call)
		assert.Equal(t, c.reason, v.Reason)
		assert.Equal(t, c.code, v.Code(), v.Reason)
		assert.True(t, strings.HasPrefix(v.Message(), c.text), v.Message())
		assert.Equal(t, c.text == "", v.Message() == "", v.Message())
		assert.Equal(t, c.code != CodeOK, v.Refused())
		ms, ok := v.Pushback()
		assert.Equal(t, c.retries != 0, ok, v.Reason)
		switch {
		case c.retries > 0:
			assert.Positive(t, ms)
		default:
			assert.Equal(t, c.retries, ms)
		}
	}
	assert.Equal(t, int64(2), e.Peek(bob, 0).Remaining, "a call that has ended takes nothing")
	assert.Equal(t, int64(1), e.Peek(alice, 0).Remaining)
	assert.Equal(t, "over limit", limits.OverLimit.String())
	assert.Equal(t, "resource_exhausted", CodeResourceExhausted.String())
	assert.Equal(t, "code_99", Code(99).String())
}

// Promise: Guesses are not told to clients, except a share's time to try again.
func TestGuessesAreNotTold(t *testing.T) {
	hidden, _ := Must(New(Options{Shadow: true}, Limit[netip.Addr]{Limiter: admissiontest.Hourly[netip.Addr](t, 1), Key: ByAddr})).Begin(from(alice))
	assert.True(t, hidden.Shadow)
	policies, standing := rateLimit(&hidden)
	assert.Empty(t, policies+standing)
	share := admissiontest.NewFake[netip.Addr](t, 2, policy.Decision{RetryAfter: time.Second}, limits.SourceShare, false)
	v, _ := Must(New(Options{}, Limit[netip.Addr]{Limiter: share, Key: ByAddr})).Begin(from(alice))
	after, ok := v.Retry()
	assert.True(t, ok)
	assert.Equal(t, time.Second, after)
	assert.Equal(t, `the limit "default" is reduced during an outage: try again in about 1s`, v.Message())
	_, standing = rateLimit(&v)
	assert.Empty(t, standing)
	guess := admissiontest.NewFake[netip.Addr](t, 2, policy.Decision{RetryAfter: time.Second}, limits.SourceLease, false)
	v, _ = Must(New(Options{}, Limit[netip.Addr]{Limiter: guess, Key: ByAddr})).Begin(from(alice))
	assert.Equal(t, limits.OverLimit, v.Reason)
	_, ok = v.Retry()
	assert.False(t, ok)
	_, ok = v.Pushback()
	assert.False(t, ok)
	policies, standing = rateLimit(&v)
	assert.Equal(t, `"default";q=2;w=3600`, policies)
	assert.Empty(t, standing)
	assert.Equal(t, `the limit "default" is exceeded`, v.Message())
}

// Promise: Health checks, reflection and listed methods are exempt.
func TestHealthAndListedMethodsAreExempt(t *testing.T) {
	limit := Limit[netip.Addr]{Limiter: admissiontest.Hourly[netip.Addr](t, 1), Key: ByAddr, Cost: func(*Call) int64 { return 2 }}
	own := Must(New(Options{Exempt: []string{"/shop.Orders/Status", "/shop.Admin/"}}, limit))
	all := Must(New(Options{LimitAll: true}, limit))
	for procedure, want := range map[string][2]limits.Reason{
		"/grpc.health.v1.Health/Watch":                                   {limits.Exempt, limits.NeverAdmitted},
		"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo":      {limits.Exempt, limits.NeverAdmitted},
		"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": {limits.Exempt, limits.NeverAdmitted},
		"/grpc.reflection.v2.ServerReflection/ServerReflectionInfo":      {limits.NeverAdmitted, limits.NeverAdmitted},
		"/shop.Orders/Status":                                            {limits.Exempt, limits.NeverAdmitted},
		"/shop.Orders/StatusOf":                                          {limits.NeverAdmitted, limits.NeverAdmitted},
		"/shop.Admin/Anything":                                           {limits.Exempt, limits.NeverAdmitted},
		"/x/shop.Admin/Anything":                                         {limits.NeverAdmitted, limits.NeverAdmitted},
		"/shop.Administration/Do":                                        {limits.NeverAdmitted, limits.NeverAdmitted},
		"":                                                               {limits.NeverAdmitted, limits.NeverAdmitted},
		"/":                                                              {limits.NeverAdmitted, limits.NeverAdmitted},
	} {
		for i, g := range []*Guard{own, all} {
			c := from(alice)
			c.Procedure = procedure
			v, _ := g.Begin(c)
			assert.Equal(t, want[i], v.Reason, procedure)
		}
	}
}

// Promise: Units are charged by the call's final code.
func TestChargeIsByTheFinalCode(t *testing.T) {
	e := admissiontest.Hourly[netip.Addr](t, 10)
	g := Must(New(Options{}, Limit[netip.Addr]{Name: "failures", Limiter: e, Key: ByAddr, Charge: func(_ *Call, served Served) int64 {
		switch {
		case served.Panicked:
			return 5
		case served.Code == unauthenticated:
			return 2
		}
		return 0
	}}))
	for i, c := range []struct {
		served Served
		left   int64
	}{{Served{Code: CodeOK}, 10}, {Served{Code: unauthenticated}, 8}, {Served{Code: 5}, 8}, {Served{Panicked: true}, 3}} {
		_, s := g.Begin(from(alice))
		for range 2 {
			s.End(c.served)
			assert.Equal(t, c.left, e.Peek(alice, 0).Remaining, "call %d; a second End does nothing", i)
		}
	}
}

// Promise: Units taken at a tap return if another limit refuses.
func TestRefusedCallReturnsUnitsOfTheTap(t *testing.T) {
	byAddr, byShop := admissiontest.Hourly[netip.Addr](t, 4), admissiontest.Hourly[string](t, 2)
	g := Must(New(Options{},
		Limit[string]{Name: "shop", Limiter: byShop, Key: ByMessage(func(m string) string { return m })},
		Limit[netip.Addr]{Name: "address", Limiter: byAddr, Key: ByAddr, AtTap: true}))
	assert.True(t, g.Taps())
	call := func(shop string) (Verdict, *Session) {
		c := from(alice)
		v, s := g.Tap(from(alice))
		if v.Refused() {
			assert.Nil(t, s)
			return v, nil
		}
		c.Tapped, c.Message = s, shop
		return g.Begin(c)
	}
	for i, shop := range []string{"a", "a", "a", "b", "b", "b"} {
		v, s := call(shop)
		s.End(Served{})
		switch i {
		case 2:
			assert.Equal(t, "shop", v.Limit)
			assert.True(t, v.Refused())
			assert.Equal(t, int64(2), byAddr.Peek(alice, 0).Remaining, "the units of the tap did not come back")
		case 5:
			assert.Equal(t, "address", v.Limit)
			assert.True(t, v.Refused())
		default:
			assert.False(t, v.Refused(), i)
			policies, _ := rateLimit(&v)
			assert.Equal(t, `"shop";q=2;w=3600, "address";q=4;w=3600`, policies)
		}
	}
	stats := g.Stats()
	assert.Equal(t, []uint64{4, 2}, []uint64{stats.Admitted, stats.OverLimit})

	// Without a tap handle all are decided at once.
	c := from(bob)
	c.Message = "c"
	v, s := g.Begin(c)
	assert.Equal(t, limits.Admitted, v.Reason)
	assert.Nil(t, s)
	assert.Equal(t, int64(3), byAddr.Peek(bob, 0).Remaining)
}

// Promise: A tap does not wait.
func TestTapDoesNotWait(t *testing.T) {
	queue := open[netip.Addr](t, policy.Must(policy.Queue(10, 1, time.Hour)))
	g := Must(New(Options{WaitUpTo: time.Hour}, Limit[netip.Addr]{Limiter: queue, Key: ByAddr, AtTap: true}))
	v, s := g.Tap(from(alice))
	assert.Equal(t, limits.Admitted, v.Reason)
	c := from(alice)
	c.Tapped = s
	v, s = g.Begin(c)
	assert.Equal(t, limits.Admitted, v.Reason)
	assert.Equal(t, "default", v.Limit, "the verdict of the tap")
	s.End(Served{})
	v, _ = g.Tap(from(alice))
	assert.Equal(t, limits.OverLimit, v.Reason)
	assert.Zero(t, v.Waited)

	charged := admissiontest.Hourly[netip.Addr](t, 5)
	g = Must(New(Options{Charge: func(_ *Call, served Served) int64 { return int64(served.Code) }}, Limit[netip.Addr]{Limiter: charged, Key: ByAddr, AtTap: true}))
	for left, code := range map[int64]Code{5: 0, 2: 3} {
		charged.Reset(alice)
		c := from(alice)
		_, c.Tapped = g.Tap(from(alice))
		_, s := g.Begin(c)
		assert.Equal(t, int64(4), charged.Peek(alice, 0).Remaining)
		s.End(Served{Code: code})
		assert.Equal(t, left, charged.Peek(alice, 0).Remaining)
	}
}

// Promise: Admitted calls under one limit allocate nothing.
func TestAdmittedPathAllocatesNothing(t *testing.T) {
	if testenv.Race {
		t.Skip("the race detector allocates")
	}
	plenty := policy.Must(policy.Funnel(1_000_000, 1, time.Second))
	byAddr, byString := open[netip.Addr](t, plenty), open[string](t, plenty)
	behind, err := NewClientAddr(AddrConfig{Header: "X-Forwarded-For", Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
	assert.NoError(t, err)
	c := from(netip.MustParseAddr("10.0.0.1"), "x-forwarded-for", "203.0.113.9, 10.1.2.3", "x-api-key", "0123456789abcdef")
	c.Identity = "alice"
	for name, g := range map[string]*Guard{
		"address":       Must(New(Options{}, Limit[netip.Addr]{Limiter: byAddr, Key: ByAddr})),
		"behind proxy":  Must(New(Options{}, Limit[netip.Addr]{Limiter: byAddr, Key: behind.Key()})),
		"metadata":      Must(New(Options{}, Limit[string]{Limiter: byString, Key: ByMetadata("x-api-key")})),
		"service":       Must(New(Options{}, Limit[string]{Limiter: byString, Key: ByService})),
		"identity":      Must(New(Options{}, Limit[string]{Limiter: byString, Key: ByIdentity(func(id any) string { return id.(string) })})),
		"waiting, hook": Must(New(Options{WaitUpTo: time.Second, OnVerdict: func(*Call, Verdict) {}}, Limit[netip.Addr]{Limiter: byAddr, Key: ByAddr})),
	} {
		for range 100 {
			g.Begin(c)
		}
		// The key may not have been filed.
		must.Await(t, func() bool {
			return testing.AllocsPerRun(1000, func() { g.Begin(c) }) == 0
		}, "%s allocates nothing", name)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	e := admissiontest.Hourly[netip.Addr](t, 1)
	good := Limit[netip.Addr]{Limiter: e, Key: ByAddr}
	with := func(change func(l *Limit[netip.Addr])) Limit[netip.Addr] {
		l := good
		change(&l)
		return l
	}
	ofMessage := ByMessage(func(netip.Addr) netip.Addr { return alice })
	for _, c := range []struct {
		of, field string
		o         Options
		limits    []AnyLimit
	}{
		{"rpclimit.Options", "Name", Options{Name: "é"}, []AnyLimit{good}},
		{"rpclimit.Options", "WaitUpTo", Options{WaitUpTo: -1}, []AnyLimit{good}},
		{"rpclimit.Options", "Spread", Options{Spread: -1}, []AnyLimit{good}},
		{"rpclimit.Options", "ClientAddr", Options{ClientAddr: &ClientAddr{}}, []AnyLimit{good}},
		{"rpclimit.Options", "Exempt[1]", Options{Exempt: []string{"/a.B/", "a.B/C"}}, []AnyLimit{good}},
		{"rpclimit.Options", "Exempt[0]", Options{Exempt: []string{"/a.B"}}, []AnyLimit{good}},
		{"rpclimit.New", "limits", Options{}, nil},
		{"rpclimit.New", "limits", Options{}, []AnyLimit{good, good, good, good, good, good, good, good, good}},
		{"rpclimit.New", "limits[0]", Options{}, []AnyLimit{nil}},
		{"rpclimit.New", "limits[1].Name", Options{}, []AnyLimit{good, good}},
		{"rpclimit.New", "limits[0].Name", Options{}, []AnyLimit{with(func(l *Limit[netip.Addr]) { l.Name = strings.Repeat("n", 65) })}},
		{"rpclimit.New", "limits[0].Limiter", Options{}, []AnyLimit{with(func(l *Limit[netip.Addr]) { l.Limiter = (*engine.Engine[netip.Addr])(nil) })}},
		{"rpclimit.New", "limits[0].Key", Options{}, []AnyLimit{with(func(l *Limit[netip.Addr]) { l.Key = Key[netip.Addr]{} })}},
		{"rpclimit.New", "limits[0].WhenNoKey", Options{}, []AnyLimit{with(func(l *Limit[netip.Addr]) { l.WhenNoKey = 3 })}},
		{"rpclimit.New", "limits[0].Key", Options{}, []AnyLimit{Limit[string]{Limiter: admissiontest.Hourly[string](t, 1), Key: ByMetadata("a b")}}},
		{"rpclimit.New", "limits[0].AtTap", Options{}, []AnyLimit{with(func(l *Limit[netip.Addr]) { l.AtTap, l.Shadow = true, true })}},
		{"rpclimit.New", "limits[0].AtTap", Options{}, []AnyLimit{with(func(l *Limit[netip.Addr]) { l.AtTap, l.Key = true, ofMessage })}},
		{"rpclimit.New", "limits[0].AtTap", Options{}, []AnyLimit{with(func(l *Limit[netip.Addr]) { l.AtTap, l.Limiter = true, admissiontest.Remote[netip.Addr](e) })}},
		{"rpclimit.New", "limits[1].AtTap", Options{}, []AnyLimit{
			with(func(l *Limit[netip.Addr]) { l.Name, l.AtTap = "a", true }), with(func(l *Limit[netip.Addr]) { l.Name = "b" }),
		}},
		{"rpclimit.New", "limits[1].AtTap", Options{}, []AnyLimit{
			with(func(l *Limit[netip.Addr]) { l.Name = "a" }), with(func(l *Limit[netip.Addr]) { l.Name, l.AtTap = "b", true }),
		}},
	} {
		_, err := New(c.o, c.limits...)
		refusedBy(t, err, c.of, c.field)
	}
	assert.Panics(t, func() { Must(New(Options{})) })
}

// A Hidden limit refuses, and nothing that adapters tell has its name or its numbers.
func TestHiddenLimitStaysHidden(t *testing.T) {
	flood, quota := open[string](t, policy.Must(policy.FixedWindow(7654, time.Hour))), open[string](t, policy.Must(policy.FixedWindow(9999, time.Hour)))
	cost := int64(7000)
	g := must.Get(New(Options{Cost: func(*Call) int64 { return cost }},
		Limit[string]{Name: "flood", Limiter: flood, Key: ByMetadata("x-tenant"), Hidden: true},
		Limit[string]{Name: "quota", Limiter: quota, Key: ByMetadata("x-tenant")}))
	answer := func() (v Verdict, text string) {
		v, _ = g.Begin(from(alice, "x-tenant", "a"))
		policies, standing := v.AppendRateLimit(nil)
		text = fmt.Sprint(v.Message(), policies, string(standing), v.AppendViolations(nil))
		assert.NotContains(t, text, "flood")
		assert.NotContains(t, text, "654")
		return v, text
	}
	_, text := answer()
	assert.Contains(t, text, `"quota";r=2999`)
	cost = 1000
	v, text := answer()
	assert.Equal(t, "flood", v.Limit)
	assert.Contains(t, text, "the limit is exceeded: try again in 1h0m0s")
	cost = 8000
	v, text = answer()
	assert.Equal(t, limits.NeverAdmitted, v.Reason)
	assert.Contains(t, text, "the limit never admits this call[")
	cost = 5000
	v, text = answer()
	assert.Equal(t, "quota", v.Limit)
	assert.Contains(t, text, "window 9999/h")
}
