package accesslog

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"
)

// form reads the fields of a line, so that formats of logs differ in nothing else.
type form interface {
	// read puts the wanted fields of a line into values, and leaves out those that the line has not. It
	// reports whether the line is in this form.
	read(line []byte, values [][]byte) bool
}

// preset is a form with the names of its usual fields.
type preset struct {
	name    string
	format  string            // of a form of text
	fields  [roles]string     // "" if the form has none
	aliases map[string]string // by names that are the same for all forms
	unit    time.Duration     // of durations
	isStart bool              // the time is a request's beginning
}

// The text formats differ in their ends, so that at most one of them reads a line.
const (
	common   = `$remote_addr $remote_ident $remote_user [$time_local] "$request" $status $body_bytes_sent`
	combined = common + ` "$http_referer" "$http_user_agent"`
	mainly   = combined + ` "$http_x_forwarded_for"`
	// recorded is written by limits.Record.
	recorded = `ral $time $verb $status $units $grant $key`
)

var (
	textAliases  = map[string]string{"addr": "remote_addr", "user": "remote_user", "agent": "http_user_agent", "referer": "http_referer", "bytes": "body_bytes_sent"}
	caddyAliases = map[string]string{"addr": "request.client_ip|request.remote_ip", "user": "user_id", "method": "request.method", "path": "request.uri", "host": "request.host"}
	envoyAliases = map[string]string{"addr": "downstream_remote_address", "host": "authority", "agent": "user_agent"}
)

func textPreset(name, format string) preset {
	p := preset{name: name, format: format, aliases: textAliases, unit: time.Second}
	names := variables(format)
	for i, candidates := range [][]string{{"msec", "time_iso8601", "time_local"}, {"request_time"}, {"status"}} {
		for _, field := range candidates {
			if p.fields[i] == "" && slices.Contains(names, field) {
				p.fields[i] = field
			}
		}
	}
	return p
}

var presets = []preset{
	{name: "ral", format: recorded, fields: [roles]string{"time", "", "status", "units", "", "verb", "grant"}, aliases: map[string]string{"addr": "key"}, unit: time.Second},
	textPreset("combined", combined), textPreset("main", mainly), textPreset("common", common),
	{name: "caddy", fields: [roles]string{"ts", "duration", "status"}, aliases: caddyAliases, unit: time.Second},
	{name: "envoy", fields: [roles]string{"start_time", "duration", "response_code"}, aliases: envoyAliases, unit: time.Millisecond, isStart: true},
	{name: "json", unit: time.Second}, {name: "csv", unit: time.Second},
}

var errUnknownForm = errors.New("no line is in a known form: give --form or --log-format, and unpack files that gzip did not pack")

// presetFor returns the preset of a format or of that name. Without both it is the first that reads the line.
func presetFor(form, format string, line []byte) (preset, error) {
	if format != "" {
		return textPreset("log_format", format), nil
	}
	var names []string
	for _, preset := range presets {
		if preset.name == form {
			return preset, nil
		}
		names = append(names, preset.name)
	}
	if form != "" {
		return preset{}, fmt.Errorf("--form is %.40q, want %s", form, strings.Join(names, ", "))
	}
	if bytes.HasPrefix(line, []byte{'{'}) {
		var fields map[string]json.RawMessage
		if json.Unmarshal(line, &fields) != nil {
			return preset{}, errUnknownForm
		}
		for _, preset := range presets {
			if _, ok := fields[preset.fields[atTime]]; ok && preset.format == "" {
				return preset, nil
			}
		}
		return presetFor("json", "", nil)
	}
	for _, preset := range presets {
		if preset.format != "" {
			if t, err := newTemplate(preset.format, nil); err == nil && t.read(line, nil) {
				return preset, nil
			}
		}
	}
	return preset{}, errUnknownForm
}

// open returns the form that reads the wanted fields. header is the first line of a CSV.
func (p *preset) open(wanted []string, header []byte) (form, error) {
	switch {
	case p.format != "":
		t, err := newTemplate(p.format, wanted)
		return t, err
	case p.name == "csv":
		columns, err := newCSV(header, wanted)
		return columns, err
	}
	o := &objects{p: p}
	for _, name := range wanted {
		var paths [][]string
		for _, path := range strings.Split(name, "|") {
			paths = append(paths, strings.Split(path, "."))
		}
		o.paths = append(o.paths, paths)
	}
	return o, nil
}

// objects reads a JSON object a line. The name of an inner field is the name of the outer field, a dot and
// its own name. A | separates several names. The first that a line has counts, since older versions of Caddy
// have other names.
type objects struct {
	p     *preset
	paths [][][]string
}

func (o *objects) read(line []byte, values [][]byte) bool {
	var fields map[string]json.RawMessage
	if json.Unmarshal(line, &fields) != nil || fields == nil {
		return false
	}
	for i, paths := range o.paths {
		if paths[0][0] == "" {
			continue
		}
		raw, ok := lookup(fields, paths[0])
		for next := 1; !ok && next < len(paths); next++ {
			raw, ok = lookup(fields, paths[next])
		}
		switch {
		case !ok || string(raw) == "null":
			continue
		case raw[0] == '"':
			var text string
			if json.Unmarshal(raw, &text) != nil {
				return false
			}
			raw = []byte(text)
		case raw[0] == '[' && i >= roles: // a header field of Caddy's is a list
			var texts []string
			if json.Unmarshal(raw, &texts) == nil {
				raw = []byte(strings.Join(texts, ","))
			}
		}
		values[i] = raw
		if o.p.isStart && i >= roles && paths[0][0] == envoyAliases["addr"] {
			values[i] = withoutPort(raw)
		}
	}
	return true
}

// lookup returns the field at a path. A name with dots of its own is tried first.
func lookup(fields map[string]json.RawMessage, path []string) (json.RawMessage, bool) {
	if raw, ok := fields[strings.Join(path, ".")]; ok || len(path) == 1 {
		return raw, ok
	}
	var inner map[string]json.RawMessage
	if json.Unmarshal(fields[path[0]], &inner) != nil {
		return nil, false
	}
	return lookup(inner, path[1:])
}

// withoutPort cuts the port from an address such as 192.0.2.1:4711 or [2001:db8::1]:4711.
func withoutPort(buffer []byte) []byte {
	if host, _, err := net.SplitHostPort(string(buffer)); err == nil {
		return []byte(host)
	}
	return buffer
}

// columns reads the fields of CSV by the names in its first line. A quoted field has no end of line.
type columns struct {
	places [][]int
	line   bytes.Reader
	reader *csv.Reader
}

func newCSV(header []byte, wanted []string) (*columns, error) {
	c := &columns{}
	c.reader = csv.NewReader(&c.line)
	c.reader.FieldsPerRecord = -1
	names := c.split(header)
	if names == nil {
		return nil, errors.New("the first line is no list of names")
	}
	c.places = make([][]int, len(names))
	for i, name := range wanted {
		if name == "" {
			continue
		}
		column := slices.IndexFunc(names, func(n string) bool { return n == name })
		if column < 0 {
			return nil, fmt.Errorf("%s: there is no column %.40q, want one of %.400q", flagFor(i), name, names)
		}
		c.places[column] = append(c.places[column], i)
	}
	return c, nil
}

func (c *columns) read(line []byte, values [][]byte) bool {
	fields := c.split(line)
	if len(fields) != len(c.places) {
		return false
	}
	for column, places := range c.places {
		for _, i := range places {
			values[i] = []byte(fields[column])
		}
	}
	return true
}

// split returns the fields of a line, or nil if a quote is out of place.
func (c *columns) split(line []byte) []string {
	c.line.Reset(line)
	fields, err := c.reader.Read()
	if err != nil {
		return nil
	}
	return fields
}
