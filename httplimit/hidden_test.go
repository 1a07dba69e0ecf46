package httplimit

import (
	"fmt"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// everyField asks for all fields that tell of limits.
const everyField = RateLimitHeaders | LegacyHeaders | XRateLimitHeaders | SpringHeaders | RetryHeaders

// hiddenCase is a handler with a hidden limit named flood, and a visible limit.
type hiddenCase struct {
	handler http.Handler
	// costs are the costs of one request after the other.
	costs []int64
	codes []int
	// visible is the name of the visible limit that the fields of the last answer tell, "" for none.
	visible string
}

// Promise: A Hidden limit stays hidden beside and as a Tiered, as a guess of an outage, in Shadow, and in a middleware around another.
func TestHiddenLimitStaysHiddenEverywhere(t *testing.T) {
	open := func(text string) *engine.Engine[netip.Addr] {
		e := must.Get(engine.New[netip.Addr](engine.Config{Policy: policy.Must(policy.Parse(text))}))
		t.Cleanup(func() { assert.NoError(t, e.Close()) })
		return e
	}
	tiered := func(name string, texts ...string) *engine.Tiered[netip.Addr] {
		first, second := policy.Must(policy.Parse(texts[0])), policy.Must(policy.Parse(texts[1]))
		tiers := must.Get(engine.NewTiered[netip.Addr](engine.Config{Name: name, Policy: first}, second))
		t.Cleanup(func() { assert.NoError(t, tiers.Close()) })
		return tiers
	}
	cost := int64(1)
	with := func(o Options, all ...AnyLimit) http.Handler {
		o.Headers, o.Cost = everyField, func(*http.Request) int64 { return cost }
		return Must(NewAll(o, all...)).Handler(done)
	}
	const flood, wide = "window 7654/3636s", "window 9999/h"
	hidden := Limit[netip.Addr]{Name: "flood", Key: ByAddr, Hidden: true}
	visible := Limit[netip.Addr]{Name: "quota", Key: ByAddr}
	as := func(l Limit[netip.Addr], limiter limits.Limiter[netip.Addr], shadow bool) Limit[netip.Addr] {
		l.Limiter, l.Shadow = limiter, shadow
		return l
	}
	outer := func(inner http.Handler, used int64) http.Handler {
		e := open(flood)
		require.True(t, e.Take(netip.MustParseAddrPort(alice).Addr(), used).Allowed)
		o := Options{Headers: everyField, Cost: func(*http.Request) int64 { return cost }}
		return Must(NewAll(o, as(hidden, e, false))).Handler(inner)
	}
	for name, c := range map[string]hiddenCase{
		"beside a Tiered":      {with(Options{}, as(hidden, open(flood), false), as(visible, tiered("quota", wide, "window 99999/d"), false)), []int64{7000, 1000}, []int{200, 429}, "quota"},
		"a hidden Tiered":      {with(Options{}, as(hidden, tiered("flood", "window 76000/3636s", flood), false), as(visible, open(wide), false)), []int64{7000, 1000}, []int{200, 429}, "quota"},
		"both refuse":          {with(Options{}, as(hidden, open(flood), false), as(visible, tiered("quota", wide, "window 9500/d"), false)), []int64{7000, 5000}, []int{200, 429}, "quota"},
		"a guess":              {with(Options{}, as(hidden, guess(t, false, limits.SourceShare), false), as(visible, open(wide), false)), []int64{1}, []int{429}, "quota"},
		"an admitting guess":   {with(Options{}, as(hidden, guess(t, true, limits.SourceShare), false), as(visible, open(wide), false)), []int64{1}, []int{200}, "quota"},
		"a visible guess":      {with(Options{}, as(hidden, open(flood), false), as(visible, guess(t, true, limits.SourceShare), false)), []int64{7000, 1000}, []int{200, 429}, "quota"},
		"spread":               {with(Options{Spread: time.Minute}, as(hidden, open(flood), false), as(visible, open(wide), false)), []int64{7000, 1000, 1000}, []int{200, 429, 429}, "quota"},
		"hidden in Shadow":     {with(Options{}, as(hidden, open(flood), true), as(visible, open(wide), false)), []int64{7000, 1000}, []int{200, 200}, "quota"},
		"visible in Shadow":    {with(Options{}, as(hidden, open(flood), false), as(visible, open(wide), true)), []int64{7000, 1000}, []int{200, 429}, ""},
		"all in Shadow":        {with(Options{Shadow: true}, as(hidden, open(flood), false), as(visible, open(wide), false)), []int64{7000, 1000}, []int{200, 200}, ""},
		"a hidden one outside": {outer(with(Options{}, as(visible, open(wide), false)), 1), []int64{7000}, []int{200}, "quota"},
		"it refuses outside":   {outer(with(Options{}, as(visible, open(wide), false)), 7000), []int64{1000}, []int{429}, ""},
		"it never admits":      {with(Options{}, as(hidden, open(flood), false), as(visible, tiered("quota", wide, "window 9500/d"), false)), []int64{8000}, []int{403}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			for i, code := range c.codes {
				cost = c.costs[i]
				for _, accept := range []string{"application/json", "text/plain"} {
					if accept == "text/plain" && code == http.StatusOK {
						// The request would take once more.
						continue
					}
					w := ask(c.handler, from(alice, "Accept", accept))
					require.Equal(t, code, w.Code)
					answer := fmt.Sprint(w.Header(), w.Body)
					assert.NotContains(t, answer, "flood")
					for _, figure := range []string{"7654", "654", "76000", "69000", "w=3636", "t=3636", "[3]"} {
						assert.NotContains(t, answer, figure)
					}
					if c.visible == "" || code == http.StatusForbidden {
						assert.NotContains(t, answer, "Ratelimit")
					} else {
						assert.Contains(t, w.Header().Get("RateLimit-Policy"), `"`+c.visible+`";q=`, "the visible limit is told")
					}
				}
			}
		})
	}
}
