package accesslog

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// template reads lines of a log_format: variables, and the texts that end them.
type template struct {
	first []byte // before the first variable
	steps []step
}

type step struct {
	until  []byte // the text after the variable, or nil at the end of the line
	places []int  // of the variable, among the wanted fields
}

var variable = regexp.MustCompile(`\$(\w+|\{\w+\})`)

func newTemplate(format string, wanted []string) (*template, error) {
	all := variable.FindAllStringIndex(format, -1)
	if len(all) == 0 {
		return nil, errors.New("the log_format has no variables, want such as $remote_addr [$time_local] \"$request\" $status")
	}
	t := &template{first: []byte(format[:all[0][0]])}
	found := make([]bool, len(wanted))
	for i, bounds := range all {
		end := len(format)
		if i+1 < len(all) {
			end = all[i+1][0]
			if bounds[1] == end {
				return nil, fmt.Errorf("the log_format has nothing between %s and the next variable", format[bounds[0]:bounds[1]])
			}
		}
		s := step{until: []byte(format[bounds[1]:end])}
		for place, name := range wanted {
			if name != "" && name == strings.Trim(format[bounds[0]:bounds[1]], "${}") {
				s.places, found[place] = append(s.places, place), true
			}
		}
		t.steps = append(t.steps, s)
	}
	if place := slices.Index(found, false); place >= 0 {
		for ; place < len(wanted); place++ {
			if !found[place] && wanted[place] != "" {
				return nil, fmt.Errorf("the log_format has no variable $%.60s: it is %.400s", wanted[place], format)
			}
		}
	}
	return t, nil
}

func (t *template) read(line []byte, values [][]byte) bool {
	line, ok := bytes.CutPrefix(line, t.first)
	if !ok {
		return false
	}
	for i := range t.steps {
		s := &t.steps[i]
		end := len(line)
		if len(s.until) > 0 {
			if end = s.end(line); end < 0 {
				return false
			}
		}
		if value := line[:end]; string(value) != "-" { // as servers write an absent field
			for _, place := range s.places {
				values[place] = value
			}
		}
		line = line[end:]
		line = line[len(s.until):]
		if i == len(t.steps)-1 && len(line) > 0 {
			return false
		}
	}
	return true
}

// end returns the offset of the text that ends a variable. A quote behind a backslash ends nothing, as Apache
// writes it inside of a field.
func (s *step) end(line []byte) int {
	from := 0
	for {
		i := bytes.Index(line[from:], s.until)
		if i < 0 {
			return -1
		}
		i += from
		backslashes := 0
		for s.until[0] == '"' && i > backslashes && line[i-backslashes-1] == '\\' {
			backslashes++
		}
		if backslashes%2 == 0 {
			return i
		}
		from = i + 1
	}
}
