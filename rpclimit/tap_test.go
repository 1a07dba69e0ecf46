package rpclimit

import (
	"bytes"
	"context"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/internal/testkit/admissiontest"
	"github.com/ral-limiter/ral/limits"
)

// tapped returns the verdict and the session of a call that passes the tap and then Begin.
func tapped(g *Guard, c *Call) (Verdict, *Session) {
	v, s := g.Tap(c)
	if v.Refused() {
		return v, s
	}
	c.Tapped = s
	return g.Begin(c)
}

// A refusal at the tap that Shadow does not enforce is the verdict, whatever the other limits say.
func TestShadowedRefusalAtTapIsTheVerdict(t *testing.T) {
	var lines bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&lines, nil))
	atTap := func() AnyLimit {
		return Limit[netip.Addr]{Name: "address", Limiter: admissiontest.Hourly[netip.Addr](t, 1), Key: ByAddr, AtTap: true}
	}
	for name, others := range map[string][]AnyLimit{
		"alone":            nil,
		"beside one":       {Limit[string]{Name: "method", Limiter: admissiontest.Hourly[string](t, 10), Key: ByProcedure}},
		"beside none":      {Limit[string]{Name: "user", Limiter: admissiontest.Hourly[string](t, 10), Key: ByMetadata("x-user"), WhenNoKey: limits.Skip}},
		"beside a refusal": {Limit[string]{Name: "user", Limiter: admissiontest.Hourly[string](t, 10), Key: ByMetadata("x-user")}},
	} {
		t.Run(name, func(t *testing.T) {
			lines.Reset()
			g := Must(New(Options{Shadow: true, Logger: logger}, append([]AnyLimit{atTap()}, others...)...))
			_, s := tapped(g, from(alice))
			s.End(Served{})
			lines.Reset()
			v, s := tapped(g, from(alice))
			s.End(Served{})
			assert.False(t, v.Refused())
			assert.Equal(t, limits.OverLimit, v.Reason)
			assert.Equal(t, "address", v.Limit)
			assert.Equal(t, uint64(1), g.Stats().OverLimit)
			assert.Equal(t, 1, strings.Count(lines.String(), "limit=address"), lines.String())
		})
	}
}

func TestExemptCallIsCountedOnce(t *testing.T) {
	calls := 0
	g := Must(New(Options{OnVerdict: func(*Call, Verdict) { calls++ }},
		Limit[netip.Addr]{Limiter: admissiontest.Hourly[netip.Addr](t, 1), Key: ByAddr, AtTap: true}))
	c := from(alice)
	c.Procedure = "/grpc.health.v1.Health/Check"
	v, s := tapped(g, c)
	assert.Equal(t, limits.Exempt, v.Reason)
	assert.Nil(t, s)
	assert.Equal(t, uint64(1), g.Stats().Exempt)
	assert.Equal(t, 1, calls)
}

func TestTapWithTheLeastShareLeft(t *testing.T) {
	for _, n := range []int64{2, 50} {
		g := Must(New(Options{},
			Limit[netip.Addr]{Name: "address", Limiter: admissiontest.Hourly[netip.Addr](t, n), Key: ByAddr, AtTap: true},
			Limit[string]{Name: "method", Limiter: admissiontest.Hourly[string](t, 10), Key: ByProcedure}))
		whole, _ := g.Begin(from(alice))
		g = Must(New(Options{},
			Limit[netip.Addr]{Name: "address", Limiter: admissiontest.Hourly[netip.Addr](t, n), Key: ByAddr, AtTap: true},
			Limit[string]{Name: "method", Limiter: admissiontest.Hourly[string](t, 10), Key: ByProcedure}))
		parted, _ := tapped(g, from(alice))
		assert.Equal(t, whole.Limit, parted.Limit)
		_, want := rateLimit(&whole)
		_, standing := rateLimit(&parted)
		assert.Equal(t, want, standing)
	}
}

// A function of another limit, or OnVerdict, panics.
func TestPanicsAfterTheTapGiveBack(t *testing.T) {
	byAddr := admissiontest.Hourly[netip.Addr](t, 3)
	panics := func(*Call) int64 { panic("a cost that is not known") }
	address := Limit[netip.Addr]{Name: "address", Limiter: byAddr, Key: ByAddr, AtTap: true}
	for name, g := range map[string]*Guard{
		"Cost":      Must(New(Options{}, address, Limit[string]{Name: "method", Limiter: admissiontest.Hourly[string](t, 1), Key: ByProcedure, Cost: panics})),
		"OnVerdict": Must(New(Options{OnVerdict: func(*Call, Verdict) { panics(nil) }}, address)),
	} {
		assert.Panics(t, func() { tapped(g, from(alice)) }, name)
		assert.Equal(t, int64(3), byAddr.Peek(alice, 0).Remaining, name)
	}
}

func TestPanicsOfChargeSettleTheRest(t *testing.T) {
	byAddr, byProcedure := admissiontest.Hourly[netip.Addr](t, 10), admissiontest.Hourly[string](t, 10)
	g := Must(New(Options{Cost: func(*Call) int64 { return 5 }},
		Limit[netip.Addr]{Name: "address", Limiter: byAddr, Key: ByAddr, AtTap: true, Charge: func(*Call, Served) int64 { panic("no charge") }},
		Limit[string]{Name: "method", Limiter: byProcedure, Key: ByProcedure, Charge: func(*Call, Served) int64 { return 1 }}))
	_, s := tapped(g, from(alice))
	assert.Panics(t, func() { s.End(Served{}) })
	assert.Equal(t, int64(5), byAddr.Peek(alice, 0).Remaining, "as taken")
	assert.Equal(t, int64(9), byProcedure.Peek(place, 0).Remaining)
}

// Such a call is counted as Cancelled, also under Shadow.
func TestCancelledAfterTheTap(t *testing.T) {
	for _, shadow := range []bool{false, true} {
		byAddr := admissiontest.Hourly[netip.Addr](t, 3)
		g := Must(New(Options{Shadow: shadow}, Limit[netip.Addr]{Limiter: byAddr, Key: ByAddr, AtTap: true}))
		c := from(alice)
		ctx, cancel := context.WithCancel(c.Context)
		c.Context = ctx
		_, c.Tapped = g.Tap(c)
		cancel()
		v, s := g.Begin(c)
		s.End(Served{Code: CodeCanceled})
		assert.Equal(t, limits.Cancelled, v.Reason)
		assert.Equal(t, uint64(1), g.Stats().Cancelled)
	}
}
