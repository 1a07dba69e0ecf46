package policy

import "time"

// civil holds the days of a time zone, numbered from Monday, 29 December 1969. No number is
// negative in any zone from 1970 on, and weeks begin with the multiples of 7.
type civil []stretch

// stretch is a time without clock changes. The first and the last have no bounds.
type stretch struct {
	// from is in Unix seconds.
	from int64
	// offset is the offset of the clocks, in seconds.
	offset int64
	// before is the latest day that the clocks showed before the stretch.
	before int64
}

const (
	hourSeconds = 60 * 60
	daySeconds  = 24 * hourSeconds
	// firstDays is the number of days from the first day to 1970.
	firstDays = 3
	// A civil is right from two days before its beginning, as clocks go back by a day at most, for
	// 13 years.
	civilBefore = 2 * daySeconds
	civilYears  = 13 * 366 * daySeconds
)

// newCivil returns the days of a zone from a Unix time on.
func newCivil(zone *time.Location, from int64) (days civil) {
	until := from + civilYears
	for second := from - civilBefore; ; {
		local := time.Unix(second, 0).In(zone)
		_, offset := local.Zone()
		if last := len(days) - 1; last < 0 {
			days = append(days, stretch{offset: int64(offset)})
		} else if days[last].offset != int64(offset) {
			days = append(days, stretch{from: second, offset: int64(offset), before: days[last].day(second - 1)})
		}
		_, end := local.ZoneBounds()
		if end.IsZero() || end.Unix() > until {
			return days
		}
		// Package time ends computed zones on the last day of a leap year when that day is asked
		// for (Go 1.26). No zone changes its clocks on that day.
		second = max(end.Unix(), second+hourSeconds)
	}
}

// day returns the latest day that the clocks have shown at a Unix time of the stretch.
func (s stretch) day(unix int64) int64 {
	return max((unix+s.offset+firstDays*daySeconds)/daySeconds, s.before)
}

// day returns the latest day that the clocks have shown at a Unix time.
func (c civil) day(unix int64) int64 {
	i := 0
	for i+1 < len(c) && c[i+1].from <= unix {
		i++
	}
	return c[i].day(unix)
}

// begins returns the Unix time at which the clocks first show that day or a later one.
func (c civil) begins(day int64) int64 {
	i := 0
	for i+1 < len(c) && c[i+1].before < day {
		i++
	}
	return max((day-firstDays)*daySeconds-c[i].offset, c[i].from)
}

// Calendar is the unit of time of a [CalendarWindow]. The zero value is none.
type Calendar int

// The windows of a calendar. A Week begins on Monday.
const (
	Day Calendar = iota + 1
	Week
	Month
	Year
)

var calendarNames = [...]string{Day: "day", Week: "week", Month: "month", Year: "year"}

// number returns the number of the window that contains a day. The windows of a month begin on the
// day from of a month.
func (unit Calendar) number(day, from int64) uint64 {
	switch unit {
	case Day:
		return uint64(day)
	case Week:
		return uint64(day / 7)
	}
	year, month := yearMonth(day)
	if unit == Year {
		return uint64(year)
	}
	month += 12 * year
	first := dayOfMonth(month, from)
	if day < first {
		return monthNumber(dayOfMonth(month-1, from), first)
	}
	return monthNumber(first, dayOfMonth(month+1, from))
}

func (unit Calendar) firstDay(number uint64) int64 {
	switch unit {
	case Day:
		return int64(number)
	case Week:
		return 7 * int64(number)
	case Month:
		return int64(number >> lengthBits)
	}
	return dayOf(int64(number), 0)
}

// endDay returns the day after the last day of a window.
func (unit Calendar) endDay(number uint64) int64 {
	if unit == Month {
		return Month.firstDay(number) + int64(number&(1<<lengthBits-1))
	}
	return unit.firstDay(number + 1)
}

const (
	// maxMonth is the number of days in the longest month, from any day of a month.
	maxMonth   = 31
	lengthBits = 5
)

// monthNumber returns the number of a month by its first day and the first day after its last. So a
// word says when its month ends under limits whose months begin on other days. Days before the first
// that has a number are left out.
func monthNumber(first, end int64) uint64 {
	first = max(first, 0)
	return uint64(first)<<lengthBits | uint64(end-first)
}

// dayOfMonth returns the number of a day of a month, or of its last day if the month is shorter. Months
// count from January 1969.
func dayOfMonth(month, day int64) int64 {
	next := month + 1
	return min(dayOf(month/12, month%12)+day, dayOf(next/12, next%12)) - 1
}

// These years begin in March 1600, so that leap days end a year, and leap years a span of 4 or
// 400. Months are counted from March too.
const (
	fourYears     = 4*365 + 1
	century       = 25*fourYears - 1
	fourCenturies = 4*century + 1
	// marchDays are the days from 1 March 1600 to the first day.
	marchDays = 135077
)

// yearMonth returns the year of a day, from 1969 on, and its month, from January, 0.
func yearMonth(day int64) (year, month int64) {
	days := day + marchDays
	era := days / fourCenturies
	days %= fourCenturies
	// Leave out the leap days, so that all years have 365 days.
	year = (days - days/(fourYears-1) + days/century - days/(fourCenturies-1)) / 365
	days -= 365*year + year/4 - year/100
	// month counts from March.
	month = (5*days + 2) / 153
	year += 400*era + 1600 - 1969
	if month += 2; month >= 12 {
		return year + 1, month - 12
	}
	return year, month
}

func dayOf(year, month int64) int64 {
	month -= 2
	if month < 0 {
		year, month = year-1, month+12
	}
	year += 1969 - 1600
	era := year / 400
	year %= 400
	return era*fourCenturies + 365*year + year/4 - year/100 + (153*month+2)/5 - marchDays
}
