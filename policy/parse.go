package policy

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// maxText is the most bytes that Parse reads. The longest String has about 130.
const maxText = 256

// Parse returns the limit of a text. It reads the String of every limit of this package:
//
//	funnel 100, 10/s                        Funnel(100, 10, time.Second)
//	queue 20, 100/s                         Queue(20, 100, time.Second)
//	bursty 10/s, 50                         Bursty(10, time.Second, 50)
//	warming up 100/s over 10s, cold 3       WarmingUp(100, time.Second, 10*time.Second, 3)
//	window 1000/h                           FixedWindow(1000, time.Hour)
//	window 1000/h aligned                   AlignedWindow(1000, time.Hour)
//	window 10000/month in Europe/Berlin     CalendarWindow(10000, Month, "Europe/Berlin")
//	window 1000/month from 20 in UTC        CalendarWindow(1000, Month, "UTC", 20)
//	sliding 1000/h                          SlidingWindow(1000, time.Hour)
//	at most 5/10m                           AtMost(5, 10*time.Minute)
//	in flight 10, 1m at most                InFlight(10, time.Minute)
//
// Numbers are decimal and may end with k, for thousands, or M, for millions. The units of time
// are ns, us, ms, s, m, h and d, which is 24 hours: 5/10m is 5 in ten minutes. Sums go from
// longer to shorter units: 90s, 1.5m and 1m30s are the same. A fraction must come out whole, as
// in 1.5k and 0.5s: nothing is rounded. 7d is 168 hours even when the clocks change, and window
// 1000/7d aligned begins on Thursdays, at multiples of 7 days from January 1, 1970. Calendar
// windows are a day, week, month or year, in a time zone that time.LoadLocation knows.
//
// Spaces may be left out beside a number or a sign, and an underscore is a space: at_most_5/10m
// needs no quotes in a shell. A text has at most 256 bytes. The error is a *[ParseError]. If a
// constructor refuses the limit, it wraps the *[FieldError].
func Parse(text string) (Policy, error) {
	p := &parser{text: text, places: map[string]int{}}
	return p.limit()
}

// ParseError reports a text that is no limit. Use errors.As to reach it.
type ParseError struct {
	// Text is the text, or its first 256 bytes.
	Text string
	// Offset is the place of the fault, in bytes from the beginning of Text.
	Offset int
	// Want is what is accepted at that place.
	Want string
	// Err is the *FieldError if a constructor refuses the limit, and otherwise nil.
	Err error
}

// Error marks the place by a caret, for example: ral: limit "funnel 100, 10/^x" at byte 15: want
// a unit of time: ns, us, ms, s, m, h or d. For a text in the notation of other programs it has the
// text to write, for example: ral: limit "^10/min" at byte 0: write "window 10/m".
func (e *ParseError) Error() string {
	offset := min(max(e.Offset, 0), len(e.Text))
	message := "want " + e.Want
	var field *FieldError
	if errors.As(e.Err, &field) {
		message = fmt.Sprintf("%s is %v, want %s", field.Field, field.Value, e.Want)
	} else if limit, isExample := suggestion(e.Text); isExample {
		message = fmt.Sprintf("write a limit such as %q", limit)
	} else if limit != nil {
		message = fmt.Sprintf("write %q", limit)
	}
	return fmt.Sprintf("ral: limit %q at byte %d: %s", e.Text[:offset]+"^"+e.Text[offset:], offset, message)
}

// Unwrap returns Err.
func (e *ParseError) Unwrap() error { return e.Err }

// Text is a limit in JSON, YAML, a flag (flag.TextVar) or wherever an encoding.TextUnmarshaler is
// read, in the notation of [Parse]. The zero Text has no limit and an empty text. Do not read it
// while another goroutine unmarshals into it.
type Text struct{ Policy Policy }

// MarshalText implements [encoding.TextMarshaler]. It writes the limit's String, and never fails.
func (t Text) MarshalText() ([]byte, error) {
	if t.Policy == nil {
		return []byte{}, nil
	}
	return []byte(t.Policy.String()), nil
}

// UnmarshalText implements [encoding.TextUnmarshaler]. An empty text leaves no limit. An error,
// or a null in JSON, leaves the limit as it was; a null sets a *Text to nil.
func (t *Text) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		t.Policy = nil
		return nil
	}
	// Parse refuses a longer text without reading it all.
	limit, err := Parse(string(text[:min(len(text), maxText+1)]))
	if err != nil {
		return err
	}
	t.Policy = limit
	return nil
}

type parser struct {
	text string
	// offset is the position of the next byte.
	offset int
	// example is an example of the limit that is being read, for errors.
	example string
	// places has the offsets of the constructor's parameters, by their names.
	places map[string]int
	// err is the first fault, or nil.
	err *ParseError
}

var numberUnits = []multiple{{"", 1}, {"k", 1e3}, {"M", 1e6}}

const (
	wantNumber = "a number, such as 100, 10k or 2M"
	wantTime   = "a unit of time: ns, us, ms, s, m, h or d"
	wantPeriod = "a time, such as s, 10m or 1d"
	orCalendar = "; or day, week, month or year, in a time zone"
	wantZone   = `"in" and a time zone, such as UTC or Europe/Berlin`
)

func (p *parser) limit() (Policy, error) {
	if len(p.text) > maxText {
		p.text = p.text[:maxText]
		p.fault(maxText, "a text of at most 256 bytes")
		return nil, p.err
	}
	p.space()
	start := p.offset
	read, ok := map[string]func() (Policy, error){
		"funnel": p.funnel, "queue": p.queue, "bursty": p.bursty, "warming": p.warmingUp,
		"window": p.window, "sliding": p.sliding, "at": p.atMost, "in": p.inFlight,
	}[p.word()]
	if !ok {
		p.fault(start, "a limit: funnel, queue, bursty, warming up, window, sliding, at most or in flight, as in "+likeFunnel)
		return nil, p.err
	}
	return read()
}

func (p *parser) funnel() (Policy, error) {
	p.example = likeFunnel
	return p.bucket(Funnel)
}

func (p *parser) queue() (Policy, error) {
	p.example = likeQueue
	return p.bucket(Queue)
}

func (p *parser) bucket(construct func(capacity, count int64, per time.Duration) (Policy, error)) (Policy, error) {
	capacity := p.number("capacity")
	p.sign(",")
	rate := p.rate("count")
	return p.made(func() (Policy, error) { return construct(capacity, rate.count, rate.per) })
}

func (p *parser) bursty() (Policy, error) {
	p.example = likeBursty
	rate := p.rate("count")
	p.sign(",")
	maxBurst := p.number("maxBurst")
	return p.made(func() (Policy, error) { return Bursty(rate.count, rate.per, maxBurst) })
}

func (p *parser) warmingUp() (Policy, error) {
	p.example = likeWarming
	p.keyword("up")
	rate := p.rate("count")
	p.keyword("over")
	warmup := p.duration("warmup", false)
	p.sign(",")
	p.keyword("cold")
	cold := p.factor("coldFactor")
	return p.made(func() (Policy, error) { return WarmingUp(rate.count, rate.per, warmup, cold) })
}

func (p *parser) sliding() (Policy, error) {
	p.example = likeSliding
	return p.windowed(SlidingWindow)
}

func (p *parser) atMost() (Policy, error) {
	p.example = likeAtMost
	p.keyword("most")
	return p.windowed(AtMost)
}

func (p *parser) inFlight() (Policy, error) {
	p.example = likeFlight
	p.keyword("flight")
	n := p.number("n")
	p.sign(",")
	longest := p.duration("longest", false)
	p.keyword("at")
	p.keyword("most")
	return p.made(func() (Policy, error) { return InFlight(n, longest) })
}

func (p *parser) windowed(construct func(limit int64, per time.Duration) (Policy, error)) (Policy, error) {
	rate := p.rate("limit")
	return p.counted(construct, rate.count, rate.per)
}

// counted is made for limits that count units in windows. An error names other limits by their text.
func (p *parser) counted(construct func(int64, time.Duration) (Policy, error), limit int64, per time.Duration) (Policy, error) {
	made, err := p.made(func() (Policy, error) { return construct(limit, per) })
	var parseError *ParseError
	if errors.As(err, &parseError) && parseError.Err != nil && per > 0 {
		text := rateText(limit, per)
		parseError.Want = strings.NewReplacer(
			"; FixedWindow holds", "; window "+text+" holds",
			"; AlignedWindow holds", "; window "+text+" aligned holds",
			fmt.Sprintf("; Funnel(%d, %[1]d, %v)", limit, per), fmt.Sprintf("; funnel %d, %s", limit, text),
		).Replace(parseError.Want)
	}
	return made, err
}

func (p *parser) window() (Policy, error) {
	p.example = likeWindow
	limit := p.number("limit")
	p.sign("/")
	p.space()
	start := p.offset
	for unit, name := range calendarNames {
		if name != "" && p.word() == name {
			return p.calendar(limit, Calendar(unit))
		}
		p.offset = start
	}
	per := p.duration("per", true)
	if p.err != nil && (p.err.Want == wantTime || p.err.Want == wantPeriod) {
		p.err.Want += orCalendar
	}
	construct := FixedWindow
	p.space()
	start = p.offset
	switch p.word() {
	case "aligned":
		construct = AlignedWindow
	case "in":
		p.fault(start, `"aligned" or nothing: only the windows of a day, week, month or year are in a time zone, as in `+likeMonth)
	case "":
		p.offset = start
	default:
		p.fault(start, `"aligned" or the end`)
	}
	return p.counted(construct, limit, per)
}

func (p *parser) calendar(limit int64, unit Calendar) (Policy, error) {
	p.example = likeMonth
	var from []int
	want := wantZone
	p.space()
	start := p.offset
	word := p.word()
	if unit == Month {
		want = `"from" and a day of the month, or ` + wantZone
		if word == "from" {
			from = append(from, int(min(p.number("from"), math.MaxInt32)))
			want = wantZone
			p.space()
			start = p.offset
			word = p.word()
		}
	}
	if word != "in" {
		p.fault(start, want)
	}
	p.parameter("zone")
	start = p.offset
	for p.offset < len(p.text) && isZone(p.text[p.offset]) {
		p.offset++
	}
	zone := p.text[start:p.offset]
	if zone == "" {
		p.fault(p.offset, "a time zone, such as UTC or Europe/Berlin")
	}
	return p.made(func() (Policy, error) { return CalendarWindow(limit, unit, zone, from...) })
}

type rate struct {
	count int64
	per   time.Duration
}

// fault notes a fault. The first stays.
func (p *parser) fault(offset int, want string) {
	if p.err == nil {
		p.err = &ParseError{Text: p.text, Offset: offset, Want: want}
	}
}

// parameter skips spaces, and notes the place of a constructor's parameter.
func (p *parser) parameter(field string) {
	p.space()
	p.places[field] = p.offset
}

// made reads the end of the text and returns the limit, or a fault.
func (p *parser) made(construct func() (Policy, error)) (Policy, error) {
	if p.space(); p.offset < len(p.text) {
		p.fault(p.offset, "the end, as in "+p.example)
	}
	if p.err != nil {
		return nil, p.err
	}
	limit, err := construct()
	if err == nil {
		return limit, nil
	}
	parseError := &ParseError{Text: p.text, Want: "a limit such as " + p.example, Err: err}
	var field *FieldError
	if errors.As(err, &field) {
		parseError.Want, parseError.Offset = field.Want, p.places[field.Field]
	}
	return nil, parseError
}

func (p *parser) space() {
	for p.offset < len(p.text) && strings.IndexByte(" _\t\r\n", p.text[p.offset]) >= 0 {
		p.offset++
	}
}

// letters skips letters and returns them. Bytes that are not ASCII are letters.
func (p *parser) letters() string {
	start := p.offset
	for p.offset < len(p.text) && (p.text[p.offset]|0x20 >= 'a' && p.text[p.offset]|0x20 <= 'z' || p.text[p.offset] >= 0x80) {
		p.offset++
	}
	return p.text[start:p.offset]
}

func (p *parser) digits() string {
	start := p.offset
	for p.digit() {
		p.offset++
	}
	return p.text[start:p.offset]
}

func (p *parser) digit() bool {
	return p.offset < len(p.text) && p.text[p.offset] >= '0' && p.text[p.offset] <= '9'
}

func (p *parser) word() string {
	p.space()
	return p.letters()
}

func (p *parser) keyword(want string) {
	p.space()
	start := p.offset
	if p.letters() != want {
		p.fault(start, fmt.Sprintf("%q, as in %s", want, p.example))
	}
}

func (p *parser) sign(want string) {
	p.space()
	if !strings.HasPrefix(p.text[p.offset:], want) {
		p.fault(p.offset, fmt.Sprintf("%q, as in %s", want, p.example))
		return
	}
	p.offset += len(want)
}

func (p *parser) rate(count string) (rate rate) {
	rate.count = p.number(count)
	p.sign("/")
	rate.per = p.duration("per", true)
	return rate
}

func (p *parser) number(field string) int64 {
	p.parameter(field)
	value, _ := p.scaled(numberUnits, wantNumber, wantNumber)
	return value
}

// duration reads a time or a sum of times. If alone, a unit without a number is 1.
func (p *parser) duration(field string, alone bool) (sum time.Duration) {
	p.parameter(field)
	if alone && !p.digit() {
		start := p.offset
		name := p.letters()
		for _, unit := range timeUnits {
			if unit.name == name {
				return time.Duration(unit.factor)
			}
		}
		if name != "" {
			p.fault(start, wantTime)
		}
		p.fault(start, wantPeriod)
		return 0
	}
	for before := uint64(math.MaxUint64); before == math.MaxUint64 || p.digit(); {
		start := p.offset
		part, unit := p.scaled(timeUnits, wantPeriod, wantTime)
		switch {
		case p.err != nil:
			return 0
		case unit >= before:
			p.fault(start, "a shorter unit of time than the one before, as in 1m30s")
		case part > int64(math.MaxInt64-sum):
			p.fault(start, "at most 106751d, 292 years, in all")
		}
		before = unit
		sum += time.Duration(part)
	}
	return sum
}

// scaled reads a decimal number and a unit, and returns their exact product and the factor.
func (p *parser) scaled(units []multiple, wantValue, wantUnit string) (product int64, factor uint64) {
	start := p.offset
	whole, part := p.digits(), ""
	if whole == "" {
		p.fault(start, wantValue)
		return 0, 0
	}
	if p.offset < len(p.text) && p.text[p.offset] == '.' {
		p.offset++
		if part = p.digits(); part == "" {
			p.fault(p.offset, "a digit")
		}
	}
	from := p.offset
	name := p.letters()
	for _, unit := range units {
		if unit.name == name {
			factor = unit.factor
		}
	}
	if factor == 0 {
		p.fault(from, wantUnit)
	}
	most, wholes := "at most 106751d, 292 years", "a whole number of nanoseconds: nothing is rounded"
	if units[0].name == "" {
		most, wholes = "at most 9223372036854775807", "a whole number, such as 1500 or 1.5k: nothing is rounded"
	}
	// The product is digits * factor / 10^places.
	part = strings.TrimRight(part, "0")
	digits, err := strconv.ParseUint(whole+part, 10, 64)
	if len(part) > 18 || err != nil && len(part) > 0 {
		p.fault(start, "fewer digits behind the point")
		return 0, 0
	}
	divisor := uint64(1)
	for range part {
		divisor *= 10
	}
	hi, lo := bits.Mul64(digits, factor)
	if err != nil || hi >= divisor {
		p.fault(start, most)
		return 0, 0
	}
	value, rest := bits.Div64(hi, lo, divisor)
	if rest != 0 {
		p.fault(start, wholes)
	}
	if value > math.MaxInt64 {
		p.fault(start, most)
	}
	return int64(value), factor
}

// factor reads a number that may be a fraction.
func (p *parser) factor(field string) float64 {
	p.parameter(field)
	start := p.offset
	for p.offset < len(p.text) && (p.digit() || p.offset > start && strings.IndexByte(".e", p.text[p.offset]) >= 0) {
		p.offset++
	}
	factor, err := strconv.ParseFloat(p.text[start:p.offset], 64)
	if err != nil {
		p.fault(start, "a number of 1 or more, such as 3 or 1.5")
	}
	return factor
}
