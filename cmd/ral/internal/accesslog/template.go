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

// variables returns the names of a log_format's variables in their order.
func variables(format string) (names []string) {
	for _, text := range variable.FindAllString(format, -1) {
		names = append(names, strings.Trim(text, "${}"))
	}
	return names
}

func newTemplate(format string, wanted []string) (*template, error) {
	names, texts := variables(format), variable.Split(format, -1)
	if len(names) == 0 {
		return nil, errors.New("the log_format has no variables, want such as $remote_addr [$time_local] \"$request\" $status")
	}
	t := &template{first: []byte(texts[0])}
	for i, name := range names {
		s := step{until: []byte(texts[i+1])}
		if len(s.until) == 0 && i < len(names)-1 {
			return nil, fmt.Errorf("the log_format has nothing between $%s and the next variable", name)
		}
		for place := range wanted {
			if wanted[place] == name {
				s.places = append(s.places, place)
			}
		}
		t.steps = append(t.steps, s)
	}
	for place, name := range wanted {
		if name != "" && !slices.Contains(names, name) {
			return nil, fmt.Errorf("%s: the log_format has no variable $%.60s: it is %.400s", flagFor(place), name, format)
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
		step := &t.steps[i]
		end := len(line)
		if len(step.until) > 0 {
			if end = step.end(line); end < 0 {
				return false
			}
		}
		// Servers write an absent field as a dash.
		if value := line[:end]; string(value) != "-" {
			for _, place := range step.places {
				values[place] = value
			}
		}
		line = line[end:]
		line = line[len(step.until):]
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
