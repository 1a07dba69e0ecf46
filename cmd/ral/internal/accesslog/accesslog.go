// Package accesslog reads the access logs of web servers and proxies, line by line.
//
// Start reading at [Reader.Next]. files.go joins files and standard input, form.go reads a line's
// fields by their names, value.go turns fields into times and numbers. The package knows no limit.
package accesslog

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"time"
)

// Config names the form of a log and the fields that are read.
type Config struct {
	// Form is "ral" for a record of package limits, "combined", "common", "main", "caddy", "envoy", "json" or "csv". Empty means that the first
	// readable line decides between the forms of JSON and text.
	Form string
	// Format is the log_format of an nginx, such as `$remote_addr [$time_local] "$request" $status`. If it is
	// set, Form must be empty.
	Format string

	// Key names the fields that together are the key. The other fields are a single name each, and an
	// empty name means the field of the form, if the form has one.
	Key                                []string
	Time, Duration, Status, Cost, Plan string
	// AtStart says that Time is the request's beginning, as in Envoy's logs, and not its end.
	AtStart bool
	// Unit is the unit of Duration, at most a second. 0 means milliseconds in Envoy's logs, and seconds in others.
	Unit time.Duration
}

// Entry is a request. Key and Plan are valid until the next call of Next.
type Entry struct {
	// Arrival is the beginning of the request in Unix nanoseconds: its end less its duration.
	Arrival int64
	// Duration is 0 if the log does not tell it.
	Duration time.Duration
	// IsWhole reports whether the stamp has no fraction of a second.
	IsWhole bool
	// Status is the response's, or 0 if the log does not tell it.
	Status int
	// Cost is 1 unless a field has it.
	Cost int64
	// Verb is Request, except in a record, and Grant the number there of the grant that begins or ends, or 0.
	Verb  Verb
	Grant int64
	// Key has no separator if it is a single field. The parts of a longer key are separated by a space.
	Key, Plan []byte
}

// end returns the end of the request in Unix nanoseconds.
func (e *Entry) end() int64 { return e.Arrival + int64(e.Duration) }

// Verb is what a line reports.
type Verb uint8

// The verbs of a record. Of a Take, units in use do not end with its line: End and Release are the ends of grants.
// Charge is a refund of less than 0 units. The cost of Lost is the number of lines that the Recorder did not write.
const (
	Request Verb = iota
	Take
	End
	Release
	Refund
	Charge
	Reset
	Block
	ChangeLimit
	Start
	Lost
)

var verbs = map[string]Verb{
	"take": Take, "end": End, "release": Release, "refund": Refund, "charge": Charge, "reset": Reset, "block": Block, "limit": ChangeLimit, "start": Start, "lost": Lost,
}

// Fault is the kind of an unreadable line.
type Fault string

// The kinds of unreadable lines.
const (
	tooLong    Fault = "longer than 64 KiB"
	otherForm  Fault = "not in the log's form"
	noTime     Fault = "without a readable time"
	noDuration Fault = "with an unreadable duration"
	noCost     Fault = "without a cost of 0 to 1000000000"
	noKey      Fault = "without a key"
	keyTooLong Fault = "with a key longer than 1 KiB"
	outOfRange Fault = "with a time outside of 1971 to 2199"
)

const (
	// maxKey bounds the bytes of a key.
	maxKey  = 1 << 10
	maxCost = 1e9
	// maxOverlap bounds the time by which a file may begin before the file in front of it ends, as while a server rotates its log.
	maxOverlap = time.Minute
	// maxSampled is the number of lines in which the first line of a known form must come.
	maxSampled = 100
)

// Unreadable counts the unreadable lines of a kind.
type Unreadable struct {
	Kind  Fault  `json:"kind"`
	Lines int64  `json:"lines"`
	First string `json:"first"` // where the first is, such as "access.log:17"
}

// Summary says what was read so far.
type Summary struct {
	// Files are in the order in which they are read.
	Files []string `json:"files"`
	// Form is the name of the log's form, such as "combined", or "" while it is unknown.
	Form  string `json:"form"`
	Lines int64  `json:"lines"`
	// Unreadable has the kinds of unreadable lines in the order of their first lines.
	Unreadable []Unreadable `json:"unreadable"`
	Broken     []Broken     `json:"broken_files"`
}

// Reader reads entries. It is for one goroutine at a time. Call [NewReader].
type Reader struct {
	Summary

	config  Config
	files   *files
	form    form
	unit    time.Duration
	isStart bool
	hasCost bool
	values  [][]byte // of the wanted fields, in the order of roles
	key     []byte
	stamps  stamps
	// header is the first line of CSV, with the names of the columns.
	header []byte
	// begun is the number of the file that had the last entry. first is when the first entry of that file ended, and last when
	// the last entry did.
	begun       int
	first, last int64
}

// NewReader returns a Reader of the files, the oldest first. The name "-" is stdin. With it or with pipes the files must
// be in the order of their times. Files that begin as gzip does are unpacked. An error names the setting at fault; files are opened later, by Next.
func NewReader(config Config, stdin io.Reader, names ...string) (*Reader, error) {
	switch {
	case config.Format != "" && config.Form != "":
		return nil, errors.New("--log-format and --form are both set, want one of them")
	case len(config.Key) == 0 || slices.Contains(config.Key, ""):
		return nil, fmt.Errorf("--key is %.60q, want the names of fields, such as addr or addr,user", strings.Join(config.Key, ","))
	}
	names, err := oldestFirst(config, names)
	if err != nil {
		return nil, err
	}
	reader := &Reader{Summary: Summary{Files: names}, config: config, values: make([][]byte, roles+len(config.Key))}
	reader.files = &files{names: names, stdin: stdin, broken: &reader.Broken}
	if config.Form == "" && config.Format == "" || config.Form == "csv" {
		return reader, nil // the first line decides
	}
	return reader, reader.choose(nil)
}

// oldestFirst sorts files by the times of their first entries, since rotated logs are listed in any order. Files that
// cannot be read twice stay in their order, as standard input and pipes cannot. The error names two files that begin at
// the same time and have the same bytes, as inOrder cannot find a copy of a log within one stamp.
func oldestFirst(config Config, names []string) ([]string, error) {
	if len(names) < 2 {
		return names, nil
	}
	begins := map[string]int64{}
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil || !info.Mode().IsRegular() {
			return names, nil
		}
		begins[name] = begin(config, name)
	}
	names = slices.SortedStableFunc(slices.Values(names), func(a, b string) int { return cmp.Compare(begins[a], begins[b]) })
	for i, name := range names[1:] {
		if before := names[i]; begins[name] == begins[before] && begins[name] != math.MaxInt64 && bytes.Equal(digest(name), digest(before)) {
			return nil, fmt.Errorf("%s and %s have the same bytes: want each log once", before, name)
		}
	}
	return names, nil
}

// digest returns a hash of a file's bytes.
func digest(name string) []byte {
	hash := sha256.New()
	if file, err := os.Open(name); err == nil {
		defer file.Close()
		_, _ = io.Copy(hash, file)
	}
	return hash.Sum(nil)
}

// begin returns when the first request of a file ended, or the latest instant for a file without requests.
func begin(config Config, name string) int64 {
	if file, err := os.Open(name); err == nil {
		defer file.Close()
		reader, err := NewReader(config, io.LimitReader(file, maxSearched), "-")
		for entry := (Entry{}); err == nil; {
			if err = reader.Next(&entry); err == nil && entry.Verb != Start {
				return entry.end()
			}
		}
	}
	return math.MaxInt64
}

// choose finds the form, from the first line unless the configuration says it.
func (r *Reader) choose(line []byte) error {
	preset, err := presetFor(r.config.Form, r.config.Format, line)
	if err != nil {
		return err
	}
	config := r.config
	wanted := append([]string{config.Time, config.Duration, config.Status, config.Cost, config.Plan, "", ""}, config.Key...)
	for i, name := range wanted {
		if i < len(preset.fields) && name == "" {
			name = preset.fields[i]
		}
		if alias, ok := preset.aliases[name]; ok {
			name = alias
		}
		wanted[i] = name
	}
	r.Form = preset.name
	r.hasCost = wanted[atCost] != ""
	r.form, err = preset.open(wanted, line)
	if err != nil {
		return fmt.Errorf("form %s: %w", preset.name, err)
	}
	if wanted[atTime] == "" {
		return fmt.Errorf("form %s: --time is empty, want the name of the field with the time", preset.name)
	}
	r.isStart = config.AtStart || preset.isStart && config.Time == ""
	r.unit = config.Unit
	if r.unit == 0 {
		r.unit = preset.unit
	}
	return nil
}

// Next reads the next entry. At the end the error is io.EOF. Other errors are of files that cannot be
// read and of settings that do not suit the log. Unreadable lines are counted and passed over.
func (r *Reader) Next(entry *Entry) error {
	for {
		line, err := r.files.next()
		switch {
		case errors.Is(err, errLong):
			r.Lines++
			r.count(tooLong)
			continue
		case err != nil:
			if errors.Is(err, io.EOF) && r.form == nil && r.Lines > 0 && r.config.Form != "csv" {
				return r.unknown()
			}
			return err
		}
		r.Lines++
		if len(line) == 0 {
			continue
		}
		if r.form == nil {
			err := r.choose(line)
			switch {
			case errors.Is(err, errUnknownForm) && r.Lines < maxSampled:
				r.count(otherForm)
				continue
			case errors.Is(err, errUnknownForm):
				return r.unknown()
			case err != nil:
				return err
			}
			if r.config.Form == "csv" {
				r.header = slices.Clone(line)
			}
		}
		// Each file may begin with the names of the columns.
		if r.header != nil && r.files.line == 1 && bytes.Equal(line, r.header) {
			continue
		}
		clear(r.values)
		fault := otherForm
		if r.form.read(line, r.values) {
			fault = r.entry(entry)
		}
		if fault == "" {
			return r.inOrder(entry)
		}
		r.count(fault)
	}
}

// inOrder returns an error if an entry is the first of its file, and much older than the last of the file before or no later
// than the first, as in a copy of that file.
func (r *Reader) inOrder(entry *Entry) error {
	if entry.Verb == Start {
		return nil
	}
	if r.begun != r.files.opened {
		if entry.end() < r.last-int64(maxOverlap) || entry.end() <= r.first && r.first < r.last {
			stamp := func(nanos int64) string { return time.Unix(0, nanos).UTC().Format(time.RFC3339Nano) }
			return fmt.Errorf("%s begins at %s, and the file in front of it has %s to %s: want files that follow each other, and the logs of several servers merged by time",
				r.files.name, stamp(entry.end()), stamp(r.first), stamp(r.last))
		}
		r.begun, r.first = r.files.opened, entry.end()
	}
	r.last = entry.end()
	return nil
}

func (r *Reader) unknown() error {
	return fmt.Errorf("%s: %w (lines read: %d)", strings.Join(r.Files[:r.files.opened], ", "), errUnknownForm, r.Lines)
}

// entry makes an entry of the values of a line.
func (r *Reader) entry(entry *Entry) Fault {
	v := r.values
	*entry = Entry{Cost: 1, Plan: v[atPlan]}
	var ok bool
	if entry.Arrival, entry.IsWhole, ok = r.stamps.read(v[atTime]); !ok {
		return noTime
	}
	if entry.Duration, ok = duration(v[atDuration], r.unit); !ok {
		return noDuration
	}
	if !r.isStart {
		entry.Arrival -= int64(entry.Duration)
	}
	if entry.Arrival < oldest || entry.Arrival > latest {
		return outOfRange
	}
	status, _ := whole(v[atStatus])
	entry.Status = int(status)
	if v[atVerb] != nil {
		var hasGrant bool
		entry.Verb, ok = verbs[string(v[atVerb])]
		if entry.Grant, hasGrant = whole(v[atGrant]); !ok || !hasGrant {
			return otherForm
		}
	}
	if r.hasCost {
		if entry.Cost, ok = whole(v[atCost]); !ok || entry.Cost > maxCost && entry.Verb != Block && entry.Verb != Lost {
			return noCost
		}
	}
	r.key = append(r.key[:0], v[roles]...)
	for _, part := range v[roles+1:] {
		r.key = append(append(r.key, ' '), part...)
	}
	entry.Key = r.key
	switch {
	case slices.ContainsFunc(v[roles:], func(part []byte) bool { return len(part) == 0 }):
		return noKey
	case len(entry.Key) > maxKey:
		return keyTooLong
	}
	return ""
}

func (r *Reader) count(kind Fault) {
	i := slices.IndexFunc(r.Unreadable, func(unreadable Unreadable) bool { return unreadable.Kind == kind })
	if i < 0 {
		i = len(r.Unreadable)
		r.Unreadable = append(r.Unreadable, Unreadable{Kind: kind, First: fmt.Sprintf("%s:%d", r.files.name, r.files.line)})
	}
	r.Unreadable[i].Lines++
}

// Progress returns the name of the file that is read, and how many of its bytes were read. size is 0 if it is unknown.
func (r *Reader) Progress() (name string, read, size int64) {
	if file, ok := r.files.file.(*os.File); ok {
		read, _ = file.Seek(0, io.SeekCurrent)
		if info, err := file.Stat(); err == nil {
			size = info.Size()
		}
	}
	return r.files.name, read, size
}
