package policy

import (
	"fmt"
	"math/bits"
	"sync/atomic"
	"time"
)

// Anchored is an optional interface of a Policy that depends on the wall clock. [AlignedWindow]
// and [CalendarWindow] implement it.
type Anchored interface {
	// Anchor returns this limit for instants that are counted from zero, a wall time. An engine
	// anchors every limit that it is given. Unanchored limits count from the beginning of 1970,
	// UTC. Words are the same under every zero. Anchoring again replaces the zero, and allocates
	// nothing if this limit was anchored to that zero lately.
	Anchor(zero time.Time) Policy
}

// aligned keeps in a word the number of a window, from about 1970, and its count.
type aligned struct {
	untraced
	limit int64
	// bits is the width of the count. The other bits of a word are the number.
	bits uint
	windows
	// zero is the time of instant 0 in Unix nanoseconds.
	zero int64
	// last is the highest number that a word can hold.
	last uint64
	kept *anchors
}

type windows struct {
	// per is 0 for a calendar's windows.
	per   time.Duration
	byPer divisor

	unit Calendar
	// from is the day on which a month's window begins. It is 1 for other units of a calendar.
	from     int64
	zone     string
	location *time.Location
	// days are the days of the location, about the years that follow zero.
	days civil
}

// anchors holds the copies of a limit that were anchored lately.
type anchors struct {
	unanchored *aligned
	// Engines that share a limit take turns in recent.
	recent [4]atomic.Pointer[aligned]
	// next is the place in recent that the next copy replaces.
	next atomic.Uint32
}

const (
	// latestZero, in the year 2249, is 13 years before Unix nanoseconds overflow an int64. Time
	// lasts 9 years; a window that begins by then, and the next, end within 12.
	latestZero = 1<<63 - 1 - 13*366*int64(24*time.Hour)

	// A count has calendarBits. The other 20 bits hold the days of more than 2,800 years.
	calendarBits = 43
	// The count of a month has monthBits. The other 22 bits hold its first day and its length.
	monthBits = 41
)

// AlignedWindow returns the counter of windows that begin at the multiples of per in Unix time,
// such as full hours: at most limit units in each. Choose it if the limit must start anew at a
// known instant, the same for all keys and after a restart. See [CalendarWindow] for days, months
// and time zones.
//
// # The most that it admits
//
// In any window of length t: limit*(1 + t/per), with t/per rounded up; twice the limit within
// per. All keys start anew at once, and callers that were told so may all come then.
//
// # Wall time
//
// An engine ties its clock to the wall clock once, in New (see [Anchored]). Windows then follow the
// engine's clock. If the wall clock is stepped later, they begin off by as much until the program
// restarts. That grants nothing, and locks out no key for longer than the step. If a program starts
// with a wall clock behind the words that it loads, their keys wait at most as long as the clock is
// behind, and one window.
//
// # Rounding and refusals
//
// Nothing is rounded. per is between a millisecond and 366 days. limit is at least 1 and at most
// 524287 if per is a millisecond, 536870911 if a second, and more above. Other values are refused
// with a *[FieldError].
//
// # Turns and time
//
// A waiting call has its turn at the beginning of a window, and is counted there. Until that window
// begins, other calls are treated as if it just did, so no call overtakes. The same holds for a
// clock that goes backwards: it grants nothing, and a caller behind the beginning of a window in
// use is told to come back when it begins. Time stands still 9 years after the epoch, and patience
// beyond 9 years counts as 9.
//
// # Giving back
//
// Units come back to the current window, or to the last with a promised turn, until it has ended.
// If all units of a promised window come back, no call is admitted before it begins, as the
// window before was full. A take can be cancelled while its window is the latest: all its units
// come back. A debt ends with its window.
//
// # One limit after another
//
// All AlignedWindows and CalendarWindows are a family. A limit that comes with a call
// (TakeWith) must have the same windows: the same per, or the same unit and zone. If a limit with
// the same windows takes over for good (SetPolicy), all units count where they are. Otherwise
// units of a window that has not ended count in the new window that contains the change. If turns
// are promised, they count in the first that begins with the last turn or later, and no call is
// admitted before that.
func AlignedWindow(limit int64, per time.Duration) (Policy, error) {
	const function = "AlignedWindow"
	if err := windowFault(function, limit, per, shortestFixed); err != nil {
		return nil, err
	}
	count := uint(63 - bits.Len64(uint64(1<<63-1)/uint64(per)))
	if most := int64(1)<<count - 1; limit > most {
		return nil, &FieldError{Of: function, Field: "limit", Value: limit, Want: fmt.Sprintf(
			"at most %d: a word that numbers the windows of %v holds no higher counts", most, per)}
	}
	return newAligned(limit, count, windows{per: per, byPer: newDivisor(uint64(per))}), nil
}

// CalendarWindow returns the counter of the days, weeks, months or years of a time zone: at most
// limit units in each, as for "10000 a month". Otherwise it is an [AlignedWindow].
//
// A window begins when the zone's clocks first show its first day: at the first midnight, or at the
// first instant after a midnight that the clocks leave out. It ends when the next window begins. A
// day that a zone leaves out has no window. Decision.ResetAfter is the exact time until the window
// ends. [Windowed] returns the mean length: 146097/4800 days for a month and 146097/400 for a year.
//
// from is the day on which the windows of a Month begin, from 1 to 31. It is 1 if it is left out. A
// month that has no such day begins on its last day. All months of a zone read each other's words,
// so engine.PolicyFor may choose a day for each key. If a key's day changes, the window that is open
// or promised ends when it was to end, with its units. The next window ends on the key's new day, so
// it may be shorter than a month.
//
// No window of this package carries unused units into the next. A [Funnel] saves units.
//
// zone is a name that time.LoadLocation knows, such as "UTC" or "Europe/Berlin"; "Local" is the
// machine's own. Any other needs the machine's time zone database, or the program's (import
// time/tzdata). The rules are read when an engine anchors the limit: a change of law takes effect
// with a new database and a restart. limit is at least 1, and at most 2199023255551 for a Month and
// 8796093022207 for another unit. Other limits, units and days, and a zone that cannot be loaded, are
// refused with a *[FieldError].
func CalendarWindow(limit int64, unit Calendar, zone string, from ...int) (Policy, error) {
	bad := func(field string, value any, want string) (Policy, error) {
		return nil, &FieldError{Of: "CalendarWindow", Field: field, Value: value, Want: want}
	}
	bits, day := uint(calendarBits), 1
	if unit == Month {
		bits = monthBits
	}
	if len(from) > 0 {
		day = from[0]
	}
	switch {
	case unit < Day || unit > Year:
		return bad("unit", int(unit), "Day, Week, Month or Year")
	case limit < 1 || limit >= 1<<bits:
		return bad("limit", limit, fmt.Sprintf("1 to %d", int64(1)<<bits-1))
	case len(from) > 0 && unit != Month:
		return bad("from", day, "none: only the windows of a Month begin on a day")
	case len(from) > 1:
		return bad("from", from, "a single day")
	case day < 1 || day > maxMonth:
		return bad("from", day, "a day from 1 to 31")
	}
	const want = "a time zone that time.LoadLocation knows, such as UTC"
	if !isZoneName(zone) {
		return bad("zone", fmt.Sprintf("%.80q", zone), want)
	}
	location, err := time.LoadLocation(zone)
	if err != nil {
		return bad("zone", fmt.Sprintf("%.80q", zone), fmt.Sprintf(
			"%s (%v); on a machine without a time zone database a program must import time/tzdata", want, err))
	}
	return newAligned(limit, bits, windows{unit: unit, from: int64(day), zone: zone, location: location}), nil
}

func newAligned(limit int64, bits uint, w windows) *aligned {
	a := &aligned{limit: limit, bits: bits, windows: w, kept: new(anchors)}
	a.kept.unanchored = a
	a.anchor(0)
	return a
}

func (a *aligned) Anchor(zero time.Time) Policy {
	unix := int64(0)
	switch seconds := zero.Unix(); {
	case seconds > latestZero/int64(time.Second):
		unix = latestZero
	case seconds >= 0:
		unix = zero.UnixNano()
	}
	if a.zero == unix {
		return a
	}
	if unix == 0 {
		return a.kept.unanchored
	}
	for i := range a.kept.recent {
		if other := a.kept.recent[i].Load(); other != nil && other.zero == unix {
			return other
		}
	}
	other := *a
	other.anchor(unix)
	a.kept.recent[a.kept.next.Add(1)%uint32(len(a.kept.recent))].Store(&other)
	return &other
}

// anchor sets the zero of a limit under construction.
func (a *aligned) anchor(zero int64) {
	a.zero = zero
	if a.per == 0 {
		a.days = newCivil(a.location, zero/int64(time.Second))
	}
	end := zero + int64(endAligned)
	if a.last = a.next(a.number(end)); a.unit == Month {
		// It is the same from every day.
		first := a.days.day(end/int64(time.Second)) + maxMonth
		a.last = monthNumber(first, first+maxMonth)
	}
}

// endAligned is the instant at which time stands still: 9 years after the epoch.
const endAligned = Instant(lastingTime)

func (w *windows) number(unix int64) uint64 {
	if w.per != 0 {
		return w.byPer.quotient(uint64(unix))
	}
	return w.unit.number(w.days.day(unix/int64(time.Second)), w.from)
}

// starts returns the Unix time at which a window begins, or would begin if it is left out.
func (w *windows) starts(number uint64) int64 {
	if w.per != 0 {
		return int64(number) * int64(w.per)
	}
	return w.days.begins(w.unit.firstDay(number)) * int64(time.Second)
}

// ends returns the Unix time at which a window ends, and the next begins.
func (w *windows) ends(number uint64) int64 {
	if w.per != 0 {
		return int64(number+1) * int64(w.per)
	}
	return w.days.begins(w.unit.endDay(number)) * int64(time.Second)
}

// next returns the number of the next window; a zone may leave out days. After a month from another
// day the next month is shorter.
func (w *windows) next(number uint64) uint64 {
	if w.per != 0 {
		return number + 1
	}
	next := w.number(w.ends(number))
	if w.unit == Month {
		first := max(Month.firstDay(next), Month.endDay(number))
		return monthNumber(first, Month.endDay(next))
	}
	return next
}

// alike reports whether words are read alike. The word of a month says when it ends, so months may
// begin on other days.
func (w *windows) alike(other *windows) bool {
	return w.per == other.per && w.unit == other.unit && w.zone == other.zone
}

// counted is an unpacked word.
type counted struct {
	// number is the number of the window.
	number uint64
	count  uint64
}

func (a *aligned) full() uint64 { return 1<<a.bits - 1 }

func (a *aligned) split(word uint64) counted {
	return counted{number: min(word>>a.bits, a.last), count: word & a.full()}
}

func (a *aligned) join(window counted) uint64 { return window.number<<a.bits | window.count }

// begins returns the instant at which a window begins, perhaps before the epoch.
func (a *aligned) begins(number uint64) Instant { return Instant(a.starts(number) - a.zero) }

// countedAt returns the count for a call at an instant. One before the word's window counts as its beginning.
func (a *aligned) countedAt(word uint64, instant Instant) counted {
	window, _ := a.current(word, instant)
	return window
}

// current is countedAt. begun reports whether the window has begun.
func (a *aligned) current(word uint64, instant Instant) (window counted, begun bool) {
	window = a.split(word)
	if a.unit == Month {
		// The window at the instant may begin on another day, and overlap the word's.
		if a.freshAt(window) > instant {
			return window, a.begins(window.number) <= instant
		}
		return counted{number: a.number(a.zero + int64(instant))}, true
	}
	number := a.number(a.zero + int64(instant))
	if number > window.number {
		return counted{number: number}, true
	}
	return window, number == window.number
}

func (a *aligned) Limit() int64 { return a.limit }

func (a *aligned) Delays() bool { return false }

// Choke refuses a call if its turn would begin a later window.
func (a *aligned) Choke(word uint64, now Instant) (uint64, bool) {
	instant := clamped(now, endAligned)
	window, begun := a.current(word, instant)
	if !begun || window.count >= uint64(a.limit) {
		return word, false
	}
	window.count++
	return a.join(window), true
}

func (a *aligned) Take(word uint64, now Instant, n int64, patience time.Duration) (next uint64, decision Decision) {
	instant := clamped(now, endAligned)
	window := a.countedAt(word, instant)
	next = word
	decision.Limit = a.limit
	switch {
	case n < 0 || n > a.limit:
		decision.RetryAfter = Never
	case n == 0:
		decision.Allowed = true
	default:
		turn := counted{number: window.number, count: window.count + uint64(n)}
		if turn.count > uint64(a.limit) {
			turn = counted{number: a.next(window.number), count: uint64(n)}
		}
		start := max(instant, a.begins(turn.number))
		if start > endAligned {
			// Time stands still before the turn.
			decision.RetryAfter = Never
			break
		}
		if decision.admit(time.Duration(start-instant), patience) {
			next, window = a.join(turn), turn
		}
	}
	if a.begins(window.number) <= instant {
		decision.Remaining = max(a.limit-int64(window.count), 0)
	}
	decision.ResetAfter = time.Duration(max(a.freshAt(window)-instant, 0))
	return next, decision
}

// FreshAt returns the end of the window, or its beginning if nothing counts in it.
func (a *aligned) FreshAt(word uint64) Instant { return max(a.freshAt(a.split(word)), 0) }

func (a *aligned) freshAt(window counted) Instant {
	if window.count == 0 {
		return a.begins(window.number)
	}
	return Instant(a.ends(window.number) - a.zero)
}

func (a *aligned) Refund(word uint64, now Instant, n int64) uint64 {
	window := a.countedAt(word, clamped(now, endAligned))
	if n < 0 {
		window.count += asUnits(n, a.full()-window.count)
		return a.join(window)
	}
	return a.lower(word, window, n)
}

// Cancel ignores undone: the units of a count are indistinguishable.
func (a *aligned) Cancel(word, taken uint64, _, now Instant, n, _ int64) uint64 {
	window := a.countedAt(word, clamped(now, endAligned))
	if n < 0 || a.split(taken).number != window.number {
		return word
	}
	return a.lower(word, window, n)
}

// lower gives back up to n units of the word's window, or of a new, empty window.
func (a *aligned) lower(word uint64, window counted, n int64) uint64 {
	back := asUnits(n, window.count)
	if back == 0 {
		return word
	}
	window.count -= back
	return a.join(window)
}

func (a *aligned) Reads(other Policy) bool {
	o, ok := other.(*aligned)
	return ok && o.zero == a.zero && o.alike(&a.windows)
}

func (a *aligned) Carry(from Policy, word uint64, now Instant) (uint64, bool) {
	old, ok := from.(*aligned)
	if !ok {
		return 0, false
	}
	if old.alike(&a.windows) {
		return word, true
	}
	instant := clamped(now, endAligned)
	window := old.countedAt(word, instant)
	if window.count == 0 && old.begins(window.number) <= instant {
		return 0, true
	}
	next := counted{number: a.number(a.zero + int64(instant)), count: min(window.count, a.full())}
	if turn := old.begins(window.number); turn > instant {
		// No call may come before the turn. It is at the beginning of its window.
		next.number = a.number(a.zero + int64(turn))
		if a.begins(next.number) < turn {
			next.number = a.next(next.number)
		}
	}
	return a.join(next), true
}

func (a *aligned) Window() time.Duration {
	switch a.unit {
	case Day:
		return 24 * time.Hour
	case Week:
		return 7 * 24 * time.Hour
	case Month:
		// A month has 146097/4800 days in the mean.
		return 2_629_746 * time.Second
	case Year:
		// A year has 146097/400 days in the mean.
		return 31_556_952 * time.Second
	}
	return a.per
}

func (a *aligned) String() string {
	if a.per == 0 {
		from := ""
		if a.from > 1 {
			from = fmt.Sprintf(" from %d", a.from)
		}
		return fmt.Sprintf("window %d/%s%s in %s", a.limit, calendarNames[a.unit], from, a.zone)
	}
	return "window " + rateText(a.limit, a.per) + " aligned"
}
