package accesslog

import (
	"bytes"
	"math"
	"strconv"
	"time"
)

// The wanted fields have these places. The fields of the key follow from roles on.
const (
	atTime = iota
	atDuration
	atStatus
	atCost
	atPlan
	atVerb
	atGrant
	roles
)

// flagFor returns the flag that names the field of a place.
func flagFor(place int) string {
	if place >= roles {
		return "--key"
	}
	return [roles]string{"--time", "--duration", "--status", "--cost", "--plan"}[place]
}

const (
	oldest      = int64(365 * 24 * time.Hour) // Unix nanoseconds
	latest      = 229 * oldest
	maxDuration = 366 * 24 * time.Hour
)

// stamps reads times. It remembers the last time that was written as a date, since many lines of a log have the same.
type stamps struct {
	text []byte
	time time.Time
}

// read reads a time: Unix time in seconds, milliseconds, microseconds or nanoseconds, the common log
// format's 10/Oct/2000:13:55:36 -0700, or RFC 3339. isWhole reports whether it has no fraction of a second.
func (s *stamps) read(buffer []byte) (nanos int64, isWhole, ok bool) {
	layout := ""
	switch {
	case len(buffer) == 26 && buffer[2] == '/':
		layout = "02/Jan/2006:15:04:05 -0700"
	case len(buffer) >= 20 && buffer[4] == '-':
		layout = time.RFC3339Nano
	}
	if layout != "" {
		if !bytes.Equal(buffer, s.text) {
			t, err := time.Parse(layout, string(buffer))
			if err != nil || t.Year() < 1970 || t.Year() > 2199 {
				return 0, false, false
			}
			s.text, s.time = append(s.text[:0], buffer...), t
		}
		return s.time.UnixNano(), s.time.Nanosecond() == 0, true
	}
	n, places, ok := decimal(buffer)
	if !ok || n < 0 {
		return 0, false, false
	}
	scale := int64(time.Second)
	for _, from := range []int64{1e11, 1e14, 1e17} { // in seconds, these lie 3,000 years ahead
		if n >= from {
			scale /= 1000
		}
	}
	if n > latest/scale {
		return math.MaxInt64, true, true
	}
	nanos = n*scale + places*scale/int64(time.Second)
	return nanos, nanos%int64(time.Second) == 0, true
}

// duration reads a decimal number of units. Nothing and "-" are 0.
func duration(buffer []byte, unit time.Duration) (time.Duration, bool) {
	if len(buffer) == 0 || len(buffer) == 1 && buffer[0] == '-' {
		return 0, true
	}
	n, places, ok := decimal(buffer)
	if !ok || n < 0 || n > int64(maxDuration/unit) {
		return 0, false
	}
	return time.Duration(n)*unit + time.Duration(places)*unit/time.Second, true
}

// decimal reads a number and its fraction, in thousand millionths. It cuts further places.
func decimal(buffer []byte) (n, fraction int64, ok bool) {
	before, after, _ := bytes.Cut(buffer, []byte{'.'})
	if bytes.ContainsAny(buffer, "eE") {
		value, err := strconv.ParseFloat(string(buffer), 64)
		if err != nil || !(value >= 0 && value < 1e18) {
			return 0, 0, false
		}
		whole, rest := math.Modf(value)
		return int64(whole), int64(rest * 1e9), true
	}
	if n, ok = whole(before); !ok {
		return 0, 0, false
	}
	scale := int64(1e8)
	for _, char := range after {
		if char < '0' || char > '9' {
			return 0, 0, false
		}
		fraction += int64(char-'0') * scale
		scale /= 10
	}
	return n, fraction, true
}

// whole reads a number of digits alone, up to 9223372036854775807 less its last digit.
func whole(buffer []byte) (n int64, ok bool) {
	for _, char := range buffer {
		if char < '0' || char > '9' || n > (math.MaxInt64-9)/10 {
			return 0, false
		}
		n = 10*n + int64(char-'0')
	}
	return n, len(buffer) > 0
}
