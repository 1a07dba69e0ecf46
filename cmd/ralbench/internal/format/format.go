// Package format writes figures for people: in tables, on the page and in errors.
package format

import (
	"fmt"
	"math"
	"regexp"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/policy"
)

// Count writes a rate with three digits: 12.3M.
func Count(value float64) string {
	unit, steps := 0, []string{"", "k", "M", "G"}
	for ; value >= 999.5 && unit < len(steps)-1; unit++ {
		value /= 1e3
	}
	return Digits(value) + steps[unit]
}

// Digits writes a number with three digits, or all before the point.
func Digits(value float64) string {
	switch {
	case math.Abs(value) >= 99.95:
		return fmt.Sprintf("%.0f", value)
	case math.Abs(value) >= 9.995:
		return fmt.Sprintf("%.1f", value)
	}
	return fmt.Sprintf("%.2f", value)
}

// Duration writes a latency with its unit: 1.50µs.
func Duration(duration time.Duration) string {
	unit := time.Nanosecond
	for unit < time.Second && duration >= 1000*unit {
		unit *= 1000
	}
	if unit == time.Nanosecond {
		return duration.String()
	}
	return Digits(float64(duration)/float64(unit)) + unit.String()[1:]
}

// Nanoseconds is Duration of a number of nanoseconds. Small fractions have three digits.
func Nanoseconds(value float64) string {
	if value < 99.95 && value != math.Trunc(value) {
		return Digits(value) + "ns"
	}
	return Duration(time.Duration(math.Round(value)))
}

// Bytes writes a size in powers of ten: 12.3MB.
func Bytes(value float64) string { return Count(value) + "B" }

// Percent writes a share: 98.6%.
func Percent(value float64) string { return fmt.Sprintf("%.1f%%", 100*value) }

// Ratio writes a ratio, and "-" for none.
func Ratio(value float64) string {
	if math.IsNaN(value) {
		return "-"
	}
	return fmt.Sprintf("%.2f", value)
}

// Spread writes a median, with the distance of the farthest value from it: 0.46 ±3%.
func Spread(spread bench.Spread, show func(float64) string) string {
	if spread.Min == spread.Max {
		return show(spread.Median)
	}
	return fmt.Sprintf("%s ±%.0f%%", show(spread.Median), 100*spread.Relative())
}

// Range writes the least and the greatest ratio: 0.44 to 0.48.
func Range(spread bench.Spread) string {
	if spread.Min == spread.Max {
		return Ratio(spread.Median)
	}
	return Ratio(spread.Min) + " to " + Ratio(spread.Max)
}

func Thousands(n int64) string { return humanize.Comma(n) }

// Numbers writes whole numbers with a separator between them.
func Numbers(numbers []int, separator string) string {
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(numbers), "[]"), " ", separator)
}

// Limit writes a limit in the notation of policy.Parse, or in words if that is impossible.
func Limit(l bench.Limit) string {
	limit, err := policy.Funnel(l.Capacity, l.Count, l.Per)
	if err != nil {
		return fmt.Sprintf("bursts of %s, then %s per %s", Thousands(l.Capacity), Thousands(l.Count), Short(l.Per))
	}
	return limit.String()
}

// Short writes a duration without the zeros at its end: 1h, not 1h0m0s.
func Short(duration time.Duration) string {
	return zeros.ReplaceAllString(duration.String(), "$1")
}

var zeros = regexp.MustCompile(`([hm])(0m)?0s$`)

// Minutes writes a long duration roughly.
func Minutes(duration time.Duration) string {
	if duration < 2*time.Minute {
		return Plural(int(max(math.Round(duration.Seconds()), 1)), "second")
	}
	return fmt.Sprintf("%.0f minutes", duration.Minutes())
}

func Plural(n int, noun string) string {
	return Thousands(int64(n)) + " " + english.PluralWord(n, noun, "")
}

// Task writes the name of a workload with its value of GOMAXPROCS.
func Task(workload string, cpu int) string {
	return fmt.Sprintf("%s (%s)", workload, Plural(cpu, "CPU"))
}

// Sentence begins a line with a capital letter and ends it with a full stop.
func Sentence(text string) string {
	if text == "" {
		return text
	}
	text = strings.ToUpper(text[:1]) + text[1:]
	if strings.ContainsAny(text[len(text)-1:], ".?!") {
		return text
	}
	return text + "."
}

// And joins words: a, b and c.
func And(words []string) string { return english.WordSeries(words, "and") }
