package answer

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/policy"
)

var noon = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

func headerOf(lines ...string) http.Header {
	h := http.Header{}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ":")
		h.Add(name, value[1:])
	}
	return h
}

// Promise: Fields are read as documented; malformed fields are left out.
func TestFieldsAreReadAsDocumented(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		// fields are separated by |.
		fields string
		want   Answer
	}{
		{"X-Other: 1", Answer{}},
		{"Retry-After: 120", Answer{RetryAfter: 120 * s}},
		{"Retry-After: 0", Answer{}},
		{"Retry-After: Tue, 24 Nov 2026 12:00:30 GMT", Answer{RetryAfter: 30 * s}},
		{"Retry-After: Tuesday, 24-Nov-26 12:00:30 GMT", Answer{RetryAfter: 30 * s}},
		{"Retry-After: Tue, 24 Nov 2026 11:00:30 GMT", Answer{}},
		// The server's clock is a day behind.
		{"Date: Mon, 23 Nov 2026 12:00:00 GMT|Retry-After: Mon, 23 Nov 2026 12:00:30 GMT", Answer{RetryAfter: 30 * s}},
		{"Date: soon|Retry-After: Tue, 24 Nov 2026 12:00:30 GMT", Answer{RetryAfter: 30 * s}},
		{"Retry-After: 99999999999999999999", Answer{RetryAfter: MaxTime}},
		{"Retry-After: Fri, 24 Nov 9999 12:00:30 GMT", Answer{RetryAfter: MaxTime}},
		{"Retry-After: -5", Answer{}},
		{"Retry-After: 1.5", Answer{RetryAfter: 1500 * time.Millisecond}},
		{"Retry-After: 30.000", Answer{RetryAfter: 30 * s}},
		{"Retry-After: 99999999999999999999.1", Answer{RetryAfter: MaxTime}},
		{"Retry-After: 1.5.2", Answer{}},
		{"Retry-After: .5", Answer{}},
		{"Retry-After: 5.", Answer{}},
		{"Retry-After: 0.00000000001", Answer{RetryAfter: 1}},
		{"Retry-After: 2|Retry-After-Ms: 1200.5", Answer{RetryAfter: 1200500 * time.Microsecond}},
		{"Retry-After: 2|Retry-After-Ms: 1s", Answer{RetryAfter: 2 * s}},
		{"Retry-After: 5" + strings.Repeat(" ", maxLength), Answer{}},
		{"Retry-After: 5s", Answer{}},
		{"Retry-After: 3|Retry-After: 60|Retry-After: 7", Answer{RetryAfter: 60 * s}},
		{"Retry-After: soon|Retry-After: Tue, 24 Nov 2026 12:00:30 GMT", Answer{RetryAfter: 30 * s}},

		{`RateLimit-Policy: "default";q=100;w=10|RateLimit: "default";r=97;t=1`, Answer{Limit: 100, Window: 10 * s, HasRemaining: true, Remaining: 97, Reset: s}},
		{`RateLimit: "default";r=97;t=1`, Answer{HasRemaining: true, Remaining: 97, Reset: s}},
		{`RateLimit: "default";r=97`, Answer{HasRemaining: true, Remaining: 97}},
		{`RateLimit-Policy: "default";q=100`, Answer{}},
		{`RateLimit-Policy: "default";q=100;w=10`, Answer{Limit: 100, Window: 10 * s}},
		{`RateLimit-Policy: default;q=100;w=10;other="a,b";more;b=:YQ==:;d=@1;f=?1;g=-1.5`, Answer{Limit: 100, Window: 10 * s}},
		// Later than its window.
		{`RateLimit-Policy: "s";q=10;w=10|RateLimit: "s";r=9;t=11`, Answer{Limit: 10, Window: 10 * s, ResetsLate: true, HasRemaining: true, Remaining: 9, Reset: 11 * s}},
		{`RateLimit-Policy: 10;w=10|RateLimit-Limit: 10|RateLimit-Remaining: 9|RateLimit-Reset: 11`, Answer{Limit: 10, Window: 10 * s, ResetsLate: true, HasRemaining: true, Remaining: 9, Reset: 11 * s}},
		{`RateLimit-Policy: 10;w=10|RateLimit: limit=10, remaining=9, reset=11`, Answer{Limit: 10, Window: 10 * s, ResetsLate: true, HasRemaining: true, Remaining: 9, Reset: 11 * s}},
		// The slowest of several, and the least left.
		{
			`RateLimit-Policy: "a";q=100;w=10, "b";q=1000;w=3600|RateLimit: "a";r=7;t=3, "b";r=900;t=60`,
			Answer{Limit: 1000, Window: 3600 * s, Burst: 100, HasRemaining: true, Remaining: 7, Reset: 3 * s, spacing: 3636e9 / 999, tightest: Quota{100, 10 * s}},
		},
		{
			`RateLimit-Policy: "b";q=1000;w=3600|RateLimit-Policy: "a";q=100;w=10|RateLimit: "a";r=7;t=3|RateLimit: "b";r=0;t=60`,
			Answer{Limit: 1000, Window: 3600 * s, Burst: 100, HasRemaining: true, Remaining: 0, Reset: 60 * s, spacing: 3636e9 / 999, tightest: Quota{1000, 3600 * s}},
		},
		// Other units say nothing about requests.
		{
			`RateLimit-Policy: "a";q=100;w=10, "b";q=1;w=3600;qu="content-bytes"|RateLimit: "a";r=7;t=3, "b";r=0;t=60`,
			Answer{Limit: 100, Window: 10 * s, HasRemaining: true, Remaining: 7, Reset: 3 * s},
		},
		{`RateLimit-Policy: "b";q=1;w=3600;qu=7`, Answer{}},
		{`RateLimit-Policy: "b";q=1;w=3600;qu="requests"`, Answer{Limit: 1, Window: 3600 * s}},
		// A malformed list is ignored as a whole.
		{`RateLimit-Policy: "default";q=100;w=10,|RateLimit: "default";r=97;t=1`, Answer{HasRemaining: true, Remaining: 97, Reset: s}},
		{`RateLimit-Policy: "default;q=100;w=10`, Answer{}},
		{`RateLimit-Policy: "default";q=100;w=10 "b"`, Answer{}},
		{`RateLimit-Policy: "default";Q=100;w=10`, Answer{}},
		{`RateLimit-Policy: "default";q=1000000000000000;w=10`, Answer{}},
		{`RateLimit-Policy: "default";q=100;w=`, Answer{}},
		{`RateLimit-Policy: "default";q=100;w=10;title=%"f%c3%bc%22r"`, Answer{Limit: 100, Window: 10 * s}},
		{`RateLimit-Policy: "default";q=100;w=10;title=%"f%C3%BCr"`, Answer{}},
		{`RateLimit-Policy: "default";q=100;w=10;title=%"f%c3r"`, Answer{}},
		{`RateLimit-Policy: "default";q=100;w=10;title=%"f%c`, Answer{}},
		{`RateLimit-Policy: "default";q=100;w=10;title=%"für"`, Answer{}},
		{`RateLimit-Policy: "default";q=100;w=10;title=%f`, Answer{}},
		{`RateLimit-Policy: "default";q=100;w=10;title=%"f`, Answer{}},
		// A limit's name is a string.
		{`RateLimit-Policy: %"default";q=100;w=10`, Answer{}},
		{`RateLimit-Policy: 100;w=10`, Answer{Limit: 100, Window: 10 * s}},
		{`RateLimit-Policy: 100;comment="a";w=10|RateLimit-Remaining: 9|RateLimit-Reset: 5`, Answer{Limit: 100, Window: 10 * s, HasRemaining: true, Remaining: 9, Reset: 5 * s}},
		{`RateLimit-Policy: "a";q=100;w=10|RateLimit: "a";a=7;w=3`, Answer{Limit: 100, Window: 10 * s, HasRemaining: true, Remaining: 7, Reset: 3 * s}},
		{`RateLimit: "a";a=7;w=3, "b";a=6;w=9`, Answer{HasRemaining: true, Remaining: 6, Reset: 9 * s}},
		{`RateLimit-Policy: "de\fault";q=100;w=10`, Answer{}},
		{`RateLimit-Policy: "d\"e\\f";q=100;w=10|RateLimit: "d\"e\\f";r=1;t=1`, Answer{Limit: 100, Window: 10 * s, HasRemaining: true, Remaining: 1, Reset: s}},
		{`RateLimit-Policy: "default";q=-100;w=10`, Answer{}},
		{`RateLimit-Policy: "default";q=100.5;w=10`, Answer{}},
		{`RateLimit-Policy: "default";q=0;w=10`, Answer{}},
		// The last value of a parameter counts.
		{`RateLimit: "default";r=97;r="x";t=1`, Answer{}},
		{`RateLimit: limit=100, remaining=50, reset=5`, Answer{Limit: 100, HasRemaining: true, Remaining: 50, Reset: 5 * s}},
		{`RateLimit-Policy: 100;w=60|RateLimit: limit=100, remaining=50, reset=5`, Answer{Limit: 100, Window: 60 * s, HasRemaining: true, Remaining: 50, Reset: 5 * s}},
		{`RateLimit: limit=100, remaining=many, reset=5`, Answer{}},
		// The field is too long.
		{`RateLimit-Policy: ` + strings.Repeat(`"a";q=100;w=10, `, 2000) + `"a"`, Answer{}},

		{"RateLimit-Limit: 100|RateLimit-Remaining: 50|RateLimit-Reset: 5", Answer{Limit: 100, HasRemaining: true, Remaining: 50, Reset: 5 * s}},
		{"RateLimit-Limit: 100, 100;w=60|RateLimit-Remaining: 50|RateLimit-Reset: 5", Answer{Limit: 100, Window: 60 * s, HasRemaining: true, Remaining: 50, Reset: 5 * s}},
		{"RateLimit-Limit: 10, 10;w=1, 1000;w=3600|RateLimit-Remaining: 5|RateLimit-Reset: 1", Answer{Limit: 1000, Window: 3600 * s, Burst: 10, HasRemaining: true, Remaining: 5, Reset: s, spacing: 3636e9 / 999}},
		{"X-RateLimit-Limit: 5000|X-RateLimit-Remaining: 4999|X-RateLimit-Reset: 1795521660", Answer{Limit: 5000, HasRemaining: true, Remaining: 4999, Reset: 60 * s}},
		{"X-RateLimit-Remaining: 4999|X-RateLimit-Reset: 1795521660500", Answer{HasRemaining: true, Remaining: 4999, Reset: 60500 * time.Millisecond}},
		{"X-RateLimit-Remaining: 4999|X-RateLimit-Reset: 1795521600", Answer{HasRemaining: true, Remaining: 4999}},
		{"X-RateLimit-Remaining: 4999|X-RateLimit-Reset: 0.2", Answer{HasRemaining: true, Remaining: 4999, Reset: s / 5}},
		{"X-RateLimit-Remaining: 4999|X-RateLimit-Reset: 99999999999999999999", Answer{HasRemaining: true, Remaining: 4999, Reset: MaxTime}},
		{"X-Rate-Limit-Remaining: 0|X-Rate-Limit-Reset: 5", Answer{HasRemaining: true, Reset: 5 * s}},
		{"X-RateLimit-Remaining: -1|X-RateLimit-Reset: 5", Answer{}},
		{"X-RateLimit-Remaining: many", Answer{}},
		{"X-RateLimit-Remaining: 1|X-RateLimit-Reset: 1.x", Answer{HasRemaining: true, Remaining: 1}},
		{"X-RateLimit-Remaining: 1|X-RateLimit-Reset: 1795521598", Answer{HasRemaining: true, Remaining: 1, past: true}},
		{"X-RateLimit-Remaining: 1|X-RateLimit-Reset: 1795521660|X-RateLimit-Reset-After: 0.65", Answer{HasRemaining: true, Remaining: 1, Reset: 650 * time.Millisecond}},
		{"X-RateLimit-Remaining: 1|X-RateLimit-Reset: 2026-11-24T13:00:30+01:00", Answer{HasRemaining: true, Remaining: 1, Reset: 30 * s}},
		{"X-RateLimit-Remaining-Requests: 59|X-RateLimit-Reset-Requests: 1s|X-RateLimit-Remaining-Tokens: 149984|X-RateLimit-Reset-Tokens: 6m0s", Answer{HasRemaining: true, Remaining: 59, Reset: s}},
		{"X-RateLimit-Remaining-Requests: 59|X-RateLimit-Reset-Requests: 1s|X-RateLimit-Remaining-Tokens: 3|X-RateLimit-Reset-Tokens: 6m0s", Answer{HasRemaining: true, Remaining: 3, Reset: 6 * time.Minute}},
		{"Anthropic-RateLimit-Tokens-Remaining: 0|Anthropic-RateLimit-Tokens-Reset: 2026-11-24T12:00:30Z|Anthropic-RateLimit-Requests-Remaining: 0|Anthropic-RateLimit-Requests-Reset: 2026-11-24T12:00:20Z", Answer{HasRemaining: true, Reset: 30 * s}},
		// The present form precedes older forms.
		{`RateLimit: "a";r=1;t=2|X-RateLimit-Remaining: 9|X-RateLimit-Reset: 9`, Answer{HasRemaining: true, Remaining: 1, Reset: 2 * s}},
	} {
		got := FieldsOf(headerOf(strings.Split(c.fields, "|")...), noon)
		assert.Equal(t, got.Burst, got.smallest.Limit, "%.200s", c.fields)
		// TestSlowestOfSeveralLimitsBinds tests these.
		got.smallest, got.others = Quota{}, 0
		assert.Equal(t, c.want, got, "%.200s", c.fields)
	}
}

func TestStatusAndFieldsTellRefusals(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		status  int
		fields  string
		refused bool
		retry   time.Duration
	}{
		{200, "Retry-After: 5", false, 0},
		{429, "Retry-After: 5", true, 5 * s},
		{429, "X-Other: 5", true, 0},
		// The reset is Answer.Reset.
		{429, `RateLimit: "a";r=0;t=7`, true, 0},
		{429, `RateLimit: "a";r=0;t=7|Retry-After: 5`, true, 5 * s},
		{503, "Retry-After: 5", true, 5 * s},
		{503, "X-Other: 5", false, 0},
		{503, "Retry-After: never", false, 0},
		{500, "Retry-After: 5", false, 0},
		{403, "Retry-After: 5", true, 5 * s},
		{403, "X-RateLimit-Remaining: 0|X-RateLimit-Reset: 9", false, 0},
		{430, "X-Other: 5", false, 0},
		{529, "Retry-After: 5", true, 5 * s},
		{529, "X-Should-Retry: false", true, policy.Never},
		{429, "X-Should-Retry: false|Retry-After: 5", true, 5 * s},
		// The reset is a time.
		{429, "X-Should-Retry: false|X-RateLimit-Remaining: 0|X-RateLimit-Reset: 9", true, 0},
		{429, "X-Should-Retry: false|X-RateLimit-Remaining: 0", true, policy.Never},
		{200, "X-Should-Retry: false", false, 0},
	} {
		a := Of(&http.Response{StatusCode: c.status, Header: headerOf(strings.Split(c.fields, "|")...)}, nil, nil)
		assert.Equal(t, c.refused, a.Refused, "%d %s", c.status, c.fields)
		assert.Equal(t, c.retry, a.RetryAfter, "%d %s", c.status, c.fields)
	}
}

// Any fields: no panic, and results within bounds.
func FuzzFields(f *testing.F) {
	f.Add("120", `"default";q=100;w=10, "b";q=5;w=2;qu="content-bytes"`, `"default";r=97;t=1`, "5", "100;w=10", "1795521600")
	f.Add("Tue, 24 Nov 2026 12:00:30 GMT", `"a\"";q=1;x=:YQ==:;y=?0;z=@-5;d=1.5,t`, `a;r=0;t=999999999999999`, "0.5", "1, 1;w=99999999999", "-1")
	f.Fuzz(func(t *testing.T, retry, policies, limit, remaining, older, reset string) {
		for _, h := range []http.Header{
			{"Retry-After": {retry}, "Ratelimit-Policy": {policies, limit}, "Ratelimit": {limit, policies}},
			{"Date": {retry}, "X-Ratelimit-Limit": {older}, "X-Ratelimit-Remaining": {remaining}, "X-Ratelimit-Reset": {reset}},
		} {
			a := FieldsOf(h, noon)
			for _, d := range []time.Duration{a.RetryAfter, a.Reset, a.Window} {
				if d < 0 || d > MaxTime {
					t.Fatalf("%v of %q: %+v", d, h, a)
				}
			}
			if a.Limit < 0 || a.Remaining < 0 || a.Window > 0 && a.Limit == 0 || !a.HasRemaining && (a.Remaining != 0 || a.Reset != 0) {
				t.Fatalf("%q: %+v", h, a)
			}
		}
	})
}
