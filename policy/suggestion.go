package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// foreignNames are names of limits in other programs, with the name here and an example. A name
// stands before those that it begins with. Names of this package are there for other capitals.
var foreignNames = []struct{ name, here, example string }{
	{"leaky bucket as a queue", "queue", likeQueue},
	{"leaky bucket", "funnel", likeFunnel},
	{"leakybucket", "funnel", likeFunnel},
	{"token bucket", "funnel", likeFunnel},
	{"tokenbucket", "funnel", likeFunnel},
	{"gcra", "funnel", likeFunnel},
	{"funnel", "funnel", likeFunnel},
	{"queue", "queue", likeQueue},
	{"bursty", "bursty", likeBursty},
	{"warming up", "warming up", likeWarming},
	{"fixed window", "window", likeWindow},
	{"window", "window", likeWindow},
	{"sliding window log", "at most", likeAtMost},
	{"sliding log", "at most", likeAtMost},
	{"sliding window", "sliding", likeSliding},
	{"sliding", "sliding", likeSliding},
	{"at most", "at most", likeAtMost},
	{"in flight", "in flight", likeFlight},
	{"concurrency", "in flight", likeFlight},
	{"", "window", likeWindow},
}

// foreignWords are words of other programs, with the text to write. Nouns have none.
var foreignWords = map[string]string{
	"millisecond": "ms", "milliseconds": "ms", "msec": "ms",
	"second": "s", "seconds": "s", "sec": "s", "secs": "s", "S": "s",
	"minute": "m", "minutes": "m", "min": "m", "mins": "m",
	"hour": "h", "hours": "h", "hr": "h", "hrs": "h", "H": "h",
	"days": "d", "D": "d", "K": "k",
	"per": "/", "every": "/", "each": "/", "a": "/", "an": "/", "rps": "/s", "qps": "/s", "rpm": "/m",
	"requests": "", "request": "", "reqs": "", "req": "", "calls": "", "call": "", "hits": "", "tokens": "", "units": "",
}

const (
	figures = "0123456789"
	// maxForeign is the most bytes of a text with a suggestion. One costs up to 20 µs on 2 busy cores.
	maxForeign = 100
)

// suggestion returns the limit for a text in the notation of other programs, or nil. isExample
// reports whether a part of the limit is made up.
func suggestion(text string) (limit Policy, isExample bool) {
	if len(text) > maxForeign {
		return nil, false
	}
	text = strings.Join(strings.Fields(strings.ReplaceAll(text, "_", " ")), " ")
	if limit = suggestNginx(text); limit != nil {
		return limit, false
	}
	foreign, isOurs := foreignNames[0], false
	for _, foreign = range foreignNames {
		if n := len(foreign.name); len(text) >= n && strings.EqualFold(text[:n], foreign.name) {
			isOurs = n > 0 && text[:n] == foreign.here
			text = strings.TrimLeft(text[n:], " :=")
			break
		}
	}
	merged := withoutThousands(text)
	for _, text := range slices.Compact([]string{merged, text}) {
		here := foreign.here + " " + translated(text)
		for _, end := range []string{"", " in UTC", ", 1m at most"} {
			if limit, err := Parse(here + end); err == nil && !(isOurs && end != "") {
				return limit, end != ""
			}
		}
	}
	// Perhaps there is only a name, or only a number. It takes the place of the example's first.
	// Below a name of this package, the error's own example is at the place of the fault.
	if isOurs || merged == "" && foreign.name == "" || strings.Trim(merged, figures) != "" {
		return nil, false
	}
	first := strings.IndexAny(foreign.example, figures)
	example := foreign.example
	if merged != "" {
		example = example[:first] + merged + strings.TrimLeft(example[first:], figures)
	}
	limit, err := Parse(example)
	return limit, err == nil
}

// suggestNginx returns the limit for a rate of nginx, such as "rate=10r/s burst=20 nodelay", or nil.
func suggestNginx(text string) (limit Policy) {
	rate, options, _ := strings.Cut(strings.TrimPrefix(text, "rate="), " ")
	count, unit, ok := strings.Cut(rate, "r/")
	options, isAtOnce := strings.CutSuffix(options, " nodelay")
	burst, err := strconv.ParseInt(strings.TrimPrefix(options, "burst="), 10, 32)
	bucket := fmt.Sprint("queue ", burst)
	switch {
	case !ok || options != "" && err != nil:
		return nil
	case options == "" || isAtOnce:
		bucket = fmt.Sprint("funnel ", burst+1)
	}
	limit, _ = Parse(bucket + ", " + count + "/" + unit)
	return limit
}

// withoutThousands joins numbers such as 1,000.
func withoutThousands(text string) string {
	for i := 1; i < len(text); i++ {
		if text[i] != ',' || strings.IndexByte(figures, text[i-1]) < 0 {
			continue
		}
		if after := text[i+1:]; len(after)-len(strings.TrimLeft(after, figures)) == 3 {
			text = text[:i] + after
		}
	}
	return text
}

// translated returns a text in the notation of Parse, as far as its words are known. A time zone
// stays as it is.
func translated(text string) (here string) {
	zone := ""
	if i := strings.LastIndex(text, " in "); i >= 0 {
		text, zone = text[:i], text[i:]
	}
	p, isNumber := &parser{text: text}, false
	for p.offset < len(text) {
		start, wasNumber := p.offset, isNumber
		p.space()
		isApart := p.offset > start
		token := p.digits()
		isNumber = token != ""
		if !isNumber {
			token = p.letters()
			if len(token) > 1 {
				token = strings.ToLower(token)
			}
			if known, ok := foreignWords[token]; ok {
				token = known
			} else if token == "" {
				token = text[p.offset : p.offset+1]
				p.offset++
			}
		}
		// Parse accepts no space between a number and its unit.
		if isApart && isNumber == wasNumber {
			here += " "
		}
		here += token
	}
	return here + zone
}
