package policy_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/policy"
)

// A text that ends with ... is an example.
//
// Promise: A limit in the notation of another program is answered with the text to write.
func TestForeignTextsAreAnsweredWithTheTextToWrite(t *testing.T) {
	for text, want := range map[string]string{
		"token bucket 100, 10/s":            "funnel 100, 10/s",
		"Token_Bucket 100, 10/s":            "funnel 100, 10/s",
		"token bucket: 100, 10 per second":  "funnel 100, 10/s",
		"leaky bucket 100, 10/s":            "funnel 100, 10/s",
		"leaky bucket as a queue 20, 100/s": "queue 20, 100/s",
		"gcra":                              "funnel 100, 10/s...",
		"GCRA 5":                            "funnel 5, 10/s...",
		"GCRA 5, 1/s":                       "funnel 5, 1/s",
		"Funnel 100, 10/s":                  "funnel 100, 10/s",
		"FUNNEL 100, 10/S":                  "funnel 100, 10/s",
		"Funnel 2M, 10K/s":                  "funnel 2000000, 10000/s",
		"At Most 5/10m":                     "at most 5/10m",
		"Warming Up 100/sec over 10 seconds, cold 1.5": "warming up 100/s over 10s, cold 1.5",
		"10/min":                       "window 10/m",
		"10/minute":                    "window 10/m",
		"10 per minute":                "window 10/m",
		"10 an hour":                   "window 10/h",
		"10 requests per 5 seconds":    "window 10/5s",
		"100 rps":                      "window 100/s",
		"1000/h":                       "window 1000/h",
		"sliding 10/hour":              "sliding 10/h",
		"sliding 10/2 Days":            "sliding 10/2d",
		"funnel 10, 5/sec":             "funnel 10, 5/s",
		"funnel 10, 5/sec burst":       "",
		"window 1,000/h":               "window 1000/h",
		"funnel 1,000,000, 10/s":       "funnel 1000000, 10/s",
		"Funnel 1,100/s":               "funnel 1, 100/s",
		"funnel 1,0000, 10/s":          "",
		"1,000/h":                      "window 1000/h",
		"1,000":                        "window 1000/h...",
		"sliding 50":                   "",
		"window 5 0/min":               "",
		"10 5/s":                       "",
		"100r/m":                       "funnel 1, 100/m",
		"rate=10r/s":                   "funnel 1, 10/s",
		"rate=10r/s burst=20":          "queue 20, 10/s",
		"rate=10r/s burst=20 nodelay":  "funnel 21, 10/s",
		"rate=10r/s burst=20 delay=8":  "",
		"rate=10r/s burst=99999999999": "",
		" fixed window 5/10m aligned":  "window 5/10m aligned",
		"sliding window 5/10m":         "sliding 5/10m",
		"sliding window log 5/10m":     "at most 5/10m",
		"Window 5/Day in UTC":          "window 5/day in UTC",
		"5 per month in Europe/Berlin": "window 5/month in Europe/Berlin",
		"window 10/day":                "",
		"10 per day":                   "window 10/day in UTC...",
		"Sliding 50":                   "sliding 50/h...",
		"concurrency 10":               "in flight 10, 1m at most...",
		"In flight 10, 1 min at most":  "in flight 10, 1m at most",
		"sliding 5/250ms, 3":           "",
		"":                             "",
		" ":                            "",
		"funnel 0, 10/s":               "",
		"0":                            "",
		"bucket":                       "",
		"10/fortnight":                 "",
		"99999999999999999999/min":     "",
		"99999999999999999999":         "",
		"token bucket " + strings.Repeat("1", 300): "",
	} {
		_, err := policy.Parse(text)
		require.Error(t, err, text)
		example, isExample := strings.CutSuffix(want, "...")
		switch {
		case want == "":
			assert.NotContains(t, err.Error(), ": write ", text)
		case isExample:
			assert.True(t, strings.HasSuffix(err.Error(), `: write a limit such as "`+example+`"`), "%s: %v", text, err)
		default:
			assert.True(t, strings.HasSuffix(err.Error(), `: write "`+want+`"`), "%s: %v", text, err)
		}
	}
	_, err := policy.Parse("token bucket 100, 10/s")
	assert.EqualError(t, err, `ral: limit "^token bucket 100, 10/s" at byte 0: write "funnel 100, 10/s"`)
}

func FuzzSuggestion(f *testing.F) {
	for _, text := range []string{"token bucket 100, 10/s", "1,000/min", "rate=1r/s burst=2", "Fenster 5/h", "\xff 10 per", "gcra 1,", "5 in  in ", "concurrency ,"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		_, err := policy.Parse(text)
		if err == nil {
			return
		}
		_, better, ok := strings.Cut(err.Error(), ` at byte 0: write "`)
		if better = strings.TrimSuffix(better, `"`); ok && !strings.Contains(text, " at byte 0") {
			_, err := policy.Parse(better)
			require.NoError(t, err)
		}
	})
}
