package policy_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/policy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseIsLenient(t *testing.T) {
	for text, same := range map[string]string{
		"funnel 1k, 10/1s":                         "funnel 1000, 10/s",
		"funnel 1.5k, 10/1m30s":                    "funnel 1500, 10/90s",
		"funnel 2M,1M/s":                           "funnel 2000000, 1000000/s",
		"funnel 0.000002M, 1.50/s":                 "",
		"funnel 0.000002M, 1.0/s":                  "funnel 2, 1/s",
		"funnel100,10/s":                           "funnel 100, 10/s",
		"  funnel  100 ,\t10 / s \n":               "funnel 100, 10/s",
		"at_most_5/10m":                            "at most 5/10m",
		"warming_up_100/s_over_10s,_cold_3":        "warming up 100/s over 10s, cold 3",
		"warming up 100/s over 0.5m, cold 3.0":     "warming up 100/s over 30s, cold 3",
		"warming up 100/s over 10s, cold 0.3e1":    "warming up 100/s over 10s, cold 3",
		"window_5/month_in_Europe/Berlin":          "window 5/month in Europe/Berlin",
		"window_5/month_from_20_in_UTC":            "window 5/month from 20 in UTC",
		"window 5/month from020 in UTC":            "window 5/month from 20 in UTC",
		"window 5/month from 1 in UTC":             "window 5/month in UTC",
		"window 5/24h aligned":                     "window 5/d aligned",
		"sliding 5/1.5h":                           "sliding 5/90m",
		"sliding 5/0.000001ms":                     "",
		"sliding 3/0.001ms":                        "sliding 3/us",
		"sliding 3/250µs":                          "sliding 3/250us",
		"sliding 3/250μs":                          "sliding 3/250us",
		"sliding 3/1m1m":                           "",
		"sliding 3/0d1h":                           "sliding 3/h",
		"at most 0005/0010m":                       "at most 5/10m",
		"at most 5.00000000000000000000000/10.00m": "at most 5/10m",
	} {
		limit, err := policy.Parse(text)
		if same == "" {
			assert.Error(t, err, text)
		} else if assert.NoError(t, err, text) {
			assert.Equal(t, same, limit.String(), text)
		}
	}
}

// parseFault returns the error of a text, in which a caret marks its place.
func parseFault(t *testing.T, marked string) *policy.ParseError {
	t.Helper()
	offset := strings.IndexByte(marked, '^')
	text := marked[:offset] + marked[offset+1:]
	limit, err := policy.Parse(text)
	require.Nil(t, limit, text)
	var e *policy.ParseError
	require.ErrorAs(t, err, &e, text)
	assert.Equal(t, []any{text, offset}, []any{e.Text, e.Offset}, err.Error())
	return e
}

func TestParseErrorsPointAtTheFault(t *testing.T) {
	long := "funnel 1" + strings.Repeat("0", 300)
	for _, c := range []struct{ text, want string }{
		{"^", "a limit: funnel, queue, bursty, warming up, window, sliding, at most or in flight, as in funnel 100, 10/s"},
		{"^1000/h", "a limit: funnel, queue, bursty, warming up, window, sliding, at most or in flight, as in funnel 100, 10/s"},
		{" ^fixed window 5/10m aligned", "a limit: funnel, queue, bursty, warming up, window, sliding, at most or in flight, as in funnel 100, 10/s"},
		{"funnel ^", "a number, such as 100, 10k or 2M"},
		{"funnel ^-1, 10/s", "a number, such as 100, 10k or 2M"},
		{"funnel 100 ^10/s", `",", as in funnel 100, 10/s`},
		{"funnel 100, 10^", `"/", as in funnel 100, 10/s`},
		{"funnel 100, 10/^", "a time, such as s, 10m or 1d"},
		{"funnel 100, 10/^x", "a unit of time: ns, us, ms, s, m, h or d"},
		{"funnel 100, 10/s^, 5", "the end, as in funnel 100, 10/s"},
		{"funnel 100, 10/5^sec", "a unit of time: ns, us, ms, s, m, h or d"},
		{"funnel 1.^, 10/s", "a digit"},
		{"funnel ^0.5, 10/s", "a whole number, such as 1500 or 1.5k: nothing is rounded"},
		{"funnel ^0.1234567890123456789M, 10/s", "fewer digits behind the point"},
		{"funnel ^99999999999999999999999, 10/s", "at most 9223372036854775807"},
		{"funnel ^9223372036854775808, 10/s", "at most 9223372036854775807"},
		{"funnel 1, 1/^0.5ns", "a whole number of nanoseconds: nothing is rounded"},
		{"funnel 1, 1/^106752d", "at most 106751d, 292 years"},
		{"funnel 1, 1/106751d^24h", "at most 106751d, 292 years, in all"},
		{"window 10/1s^1m", "a shorter unit of time than the one before, as in 1m30s"},
		{"window 10/1us^1µs", "a shorter unit of time than the one before"},
		{"queue 1^/s", `",", as in queue 20, 100/s`},
		{"bursty 10/s^", `",", as in bursty 10/s, 50`},
		{"warming ^100/s", `"up", as in warming up 100/s over 10s, cold 3`},
		{"warming up 100/s^", `"over", as in warming up 100/s over 10s, cold 3`},
		{"warming up 100/s over 10s, ^3", `"cold", as in warming up 100/s over 10s, cold 3`},
		{"warming up 100/s over 10s, cold ^", "a number of 1 or more, such as 3 or 1.5"},
		{"warming up 100/s over 10s, cold ^1e999", "a number of 1 or more, such as 3 or 1.5"},
		{"warming up 100/s over 10s, cold ^Inf", "a number of 1 or more, such as 3 or 1.5"},
		{"at ^least 5/m", `"most", as in at most 5/10m`},
		{"in ^flights 5, 1m at most", `"flight", as in in flight 10, 1m at most`},
		{"in flight 5, 1m^", `"at", as in in flight 10, 1m at most`},
		{"window 1000/h ^alined", `"aligned" or the end`},
		{"window 1000/h aligned ^5", "the end, as in window 1000/h"},
		{"window 1000/d ^in UTC", `"aligned" or nothing: only the windows of a day, week, month or year are in a time zone`},
		{"window 1000/day^", `"in" and a time zone, such as UTC or Europe/Berlin`},
		{"window 1000/month^", `"from" and a day of the month, or "in" and a time zone, such as UTC or Europe/Berlin`},
		{"window 1000/month ^at 20 in UTC", `"from" and a day of the month, or "in" and a time zone, such as UTC or Europe/Berlin`},
		{"window 1000/month from^", "a number, such as 100, 10k or 2M"},
		{"window 1000/month from 20^", `"in" and a time zone, such as UTC or Europe/Berlin`},
		{"window 1000/day ^from 20 in UTC", `"in" and a time zone, such as UTC or Europe/Berlin`},
		{"window 1000/^mo in UTC", "a unit of time: ns, us, ms, s, m, h or d; or day, week, month or year, in a time zone"},
		{"window 1000/^", "a time, such as s, 10m or 1d; or day, week, month or year, in a time zone"},
		{"window 1000/day in^", "a time zone, such as UTC or Europe/Berlin"},
		// A point is no part of a name.
		{"window 1/day in ^../../etc/passwd", "a time zone, such as UTC or Europe/Berlin"},
		{"window 1000/day in Europe^, Berlin", "the end, as in window 10000/month in Europe/Berlin"},
	} {
		e := parseFault(t, c.text)
		assert.True(t, strings.HasPrefix(e.Want, c.want), "%s: %v", c.text, e)
		assert.NoError(t, e.Err)
	}
	_, err := policy.Parse("funnel 100, 10/x")
	assert.EqualError(t, err, `ral: limit "funnel 100, 10/^x" at byte 15: want a unit of time: ns, us, ms, s, m, h or d`)

	for range 2 {
		_, err = policy.Parse(long)
		var e *policy.ParseError
		require.ErrorAs(t, err, &e)
		assert.Equal(t, policy.ParseError{Text: long[:256], Offset: 256, Want: "a text of at most 256 bytes"}, *e)
		long = strings.Repeat("x", 1<<20)
	}
	// The zero error has no place to point at, and a handmade error any place.
	assert.Equal(t, `ral: limit "^" at byte 0: want `, (&policy.ParseError{}).Error())
	assert.Equal(t, `ral: limit "ab^" at byte 2: want c`, (&policy.ParseError{Text: "ab", Offset: 9, Want: "c"}).Error())
}

// The error of a constructor points at the parameter that it refuses.
func TestParseRefusesLimitsThatConstructorsRefuse(t *testing.T) {
	for _, c := range []struct{ text, of, field string }{
		{"funnel ^0, 10/s", "Funnel", "capacity"},
		{"funnel 1, ^0/s", "Funnel", "count"},
		{"funnel 1, 1/^0s", "Funnel", "per"},
		{"funnel 1, 1/^999ns", "Funnel", "per"},
		{"sliding 3/^ns", "SlidingWindow", "per"},
		{"bursty 1/s, ^9223372036854775807", "Bursty", "maxBurst"},
		{"warming up 1/s over ^0s, cold 3", "WarmingUp", "warmup"},
		{"warming up 1/s over 1s, cold ^0.5", "WarmingUp", "coldFactor"},
		{"window ^16777216/s", "FixedWindow", "limit"},
		{"window 1/^1ns", "FixedWindow", "per"},
		{"window ^524288/ms aligned", "AlignedWindow", "limit"},
		{"window ^0/day in UTC", "CalendarWindow", "limit"},
		{"window 1/month from ^0 in UTC", "CalendarWindow", "from"},
		{"window 1/month from ^32 in UTC", "CalendarWindow", "from"},
		{"window 1/month from ^9223372036854775807 in UTC", "CalendarWindow", "from"},
		{"window 1/day in ^Europe/Atlantis", "CalendarWindow", "zone"},
		{"at most 5/^1us", "AtMost", "per"},
	} {
		e := parseFault(t, c.text)
		var field *policy.FieldError
		if assert.ErrorAs(t, e, &field, c.text) {
			assert.Equal(t, c.of, field.Of)
			assert.Equal(t, c.field, field.Field)
			// A semicolon precedes other limits, by their texts.
			if !strings.Contains(field.Want, "; ") {
				assert.Equal(t, field.Want, e.Want)
			}
			assert.Contains(t, e.Error(), "want "+e.Want)
		}
	}
	_, err := policy.Parse("funnel 0, 10/s")
	assert.EqualError(t, err, `ral: limit "funnel ^0, 10/s" at byte 7: capacity is 0, want 1 or more`)
	const others = "; window %[1]s aligned holds this limit; funnel %s, %[1]s is a bucket of this rate"
	for _, text := range []string{"window 5000M/h", "sliding 5000M/h", "at most 5000M/h"} {
		_, err := policy.Parse(text)
		assert.ErrorContains(t, err, "no higher count")
		assert.NotContains(t, err.Error(), "; window 5000000000/h holds", text)
		assert.ErrorContains(t, err, fmt.Sprintf(others, "5000000000/h", "5000000000"), text)
	}
	for _, text := range []string{"sliding 2M/m", "at most 2M/m"} {
		_, err := policy.Parse(text)
		assert.ErrorContains(t, err, "; window 2000000/m holds this limit"+fmt.Sprintf(others, "2000000/m", "2000000"), text)
	}
}

func roundTrip(t *testing.T, limit policy.Policy) {
	t.Helper()
	text := limit.String()
	parsed := must.Get(policy.Parse(text))
	require.Equal(t, text, parsed.String())
	require.Equal(t, policy.Figures(limit), policy.Figures(parsed), text)
	var read policy.Text
	require.NoError(t, read.UnmarshalText(must.Get(policy.Text{Policy: limit}.MarshalText())))
	require.Equal(t, policy.Figures(limit), policy.Figures(read.Policy))
}

func FuzzTextRoundTrip(f *testing.F) {
	addScripts(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		s := &script{data: data}
		roundTrip(t, withoutHandles(kinds[int(s.byte())%len(kinds)].read(s).Policy))
	})
}

// Promise: `Parse` reads every text of `String` exactly.
func TestParseReadsEveryString(t *testing.T) {
	s := &script{rng: rand.New(rand.NewPCG(8, 9))}
	for _, k := range kinds {
		for range 300 / raceFactor {
			roundTrip(t, withoutHandles(k.read(s).Policy))
		}
	}
}

// FuzzParse reads any text: a limit, which is then written and read back, or an error.
// Promise: `Parse` never panics, and its errors point into the text.
func FuzzParse(f *testing.F) {
	for _, c := range figures {
		f.Add(c.text)
	}
	for _, text := range []string{"", "funnel 1.5k, 1/1.5m", "funnel 0.1M, 9223372036854775807/106751d1ns", "window 1/day in \xff", "at\x00most",
		"warming up 1/s over 1s, cold 1.7976931348623157e308", "warming up 1/s over 1s, cold 0x1p4", "funnel 1_000, 1/s"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		limit, err := policy.Parse(text)
		if err == nil {
			roundTrip(t, limit)
			return
		}
		var e *policy.ParseError
		if !errors.As(err, &e) || limit != nil || e.Want == "" || e.Offset < 0 || e.Offset > len(e.Text) || !strings.HasPrefix(text, e.Text) {
			t.Fatalf("Parse(%q) = %v, %#v", text, limit, err)
		}
		if len(err.Error()) > 2000 {
			t.Fatalf("Parse(%q): an error of %d bytes", text, len(err.Error()))
		}
	})
}

// Promise: JSON and flags read and write `policy.Text`.
func TestTextIsReadInJSONAndFlags(t *testing.T) {
	type config struct {
		Requests policy.Text
		Logins   *policy.Text `json:",omitempty"`
	}
	var c config
	require.NoError(t, json.Unmarshal([]byte(`{"Requests": "funnel 100, 10/s", "Logins": "at most 5/10m"}`), &c))
	assert.Equal(t, policy.Must(policy.Parse("at most 5/10m")), c.Logins.Policy)

	// A fault leaves the limit as it was.
	err := json.Unmarshal([]byte(`{"Requests": "funnel 100"}`), &c)
	var e *policy.ParseError
	require.ErrorAs(t, err, &e)
	assert.Equal(t, 10, e.Offset)
	assert.Equal(t, policy.Must(policy.Parse("funnel 100, 10/s")), c.Requests.Policy)
	require.ErrorAs(t, c.Requests.UnmarshalText(make([]byte, math.MaxUint16)), &e)
	assert.Len(t, e.Text, 256)

	// Without a limit the text is empty, both ways.
	written := must.Get(json.Marshal(config{}))
	assert.JSONEq(t, `{"Requests": ""}`, string(written))
	require.NoError(t, json.Unmarshal(written, &c))
	assert.Nil(t, c.Requests.Policy)

	// A null leaves the limit as it was, and a pointer nil.
	c = config{policy.Text{Policy: policy.Must(policy.Parse("funnel 100, 10/s"))}, &policy.Text{Policy: policy.Must(policy.Parse("at most 5/10m"))}}
	require.NoError(t, json.Unmarshal([]byte(`{"Requests": null, "Logins": null}`), &c))
	assert.Equal(t, policy.Must(policy.Parse("funnel 100, 10/s")), c.Requests.Policy)
	assert.Nil(t, c.Logins)

	var limit policy.Text
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.TextVar(&limit, "limit", policy.Text{Policy: policy.Must(policy.Parse("sliding 1000/h"))}, "the `limit`")
	assert.Equal(t, "sliding 1000/h", flags.Lookup("limit").DefValue)
	require.NoError(t, flags.Parse(nil))
	assert.Equal(t, policy.Must(policy.Parse("sliding 1000/h")), limit.Policy)
	require.NoError(t, flags.Parse([]string{"-limit", "at_most_5/10m"}))
	assert.Equal(t, policy.Must(policy.Parse("at most 5/10m")), limit.Policy)
	assert.ErrorContains(t, flags.Parse([]string{"-limit", "at_most_5"}), `limit "at_most_5^" at byte 9: want "/", as in at most 5/10m`)
}
