package main

import "bytes"

// lines is a Writer that passes on what is written, line by line.
type lines struct {
	to   func(line string)
	rest []byte
}

func (l *lines) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	for {
		line, rest, found := bytes.Cut(l.rest, []byte("\n"))
		if !found {
			return len(p), nil
		}
		l.to(string(line))
		l.rest = rest
	}
}
