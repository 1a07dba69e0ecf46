// Package limitfile has the limits of a configuration: those of limits.yaml and of a file as package limitfile
// of the root module reads it, and those of other files' rules. limits.yaml becomes the lines of such a file.
package limitfile

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/ral-limiter/ral/cmd/rald/internal/configfile"
	"github.com/ral-limiter/ral/limitfile"
	"github.com/ral-limiter/ral/policy"
)

// Name is the name of the file in its directory.
const Name = "limits.yaml"

// Named is a limit under the name by which calls find it.
type Named struct {
	Name   string
	Policy policy.Policy
	Place  configfile.Place
	// Of has the limit's settings. It is nil for a candidate, and for a limit of another file's rule.
	Of *limitfile.Limit
}

// IsShared reports whether tenants share the limit.
func (n *Named) IsShared() bool {
	return n.Of != nil && (n.Of.Reserved != nil || len(n.Of.Shares)+len(n.Of.Ceilings) > 0)
}

// IsPart reports whether the limit is of no line of its own in a file: a plan, a candidate or another file's.
func (n *Named) IsPart() bool { return n.Of == nil || n.Name != n.Of.Name }

// File has limits. The zero File has none.
type File struct {
	// Limits are those of limits.yaml and of AddFile, in order.
	Limits []limitfile.Limit
	// IsMissing reports whether Read has found no file.
	IsMissing bool
	// InFile counts the limits of AddFile.
	InFile int

	all   []Named
	known map[string]int
}

// All returns the limits in the order of their adding. A plan is a limit NAME/plan/PLAN. A candidate has a name
// that clients cannot call: see Candidate.
func (f *File) All() []Named { return f.all }

// Find returns the limit of a name.
func (f *File) Find(name string) (policy.Policy, bool) {
	i, ok := f.known[name]
	if !ok {
		return nil, false
	}
	return f.all[i].Policy, true
}

// Candidate returns the name of a limit's candidate.
func Candidate(name string) string { return "[candidate] " + name }

// Add adds a limit unless there is one of its name.
func (f *File) Add(named Named) {
	if f.known == nil {
		f.known = map[string]int{}
	}
	if _, twice := f.known[named.Name]; !twice {
		f.known[named.Name] = len(f.all)
		f.all = append(f.all, named)
	}
}

// Read reads limits.yaml in the directory, a map from names to texts for policy.Parse, or to maps with limit
// and the settings of a file of limits:
//
//	limits:
//	  api:   funnel 100, 10/s
//	  login: {limit: at most 5/10m, warn-at: [0.8, 0.95]}
//
// Without the file there are no limits. A file of no bytes or of comments alone is a fault, since it
// may be half-written: limits: {} is accepted. The error joins a *configfile.Error for each fault.
func Read(dir string) (*File, error) {
	file, text, err := configfile.ReadIn(dir, Name)
	if err != nil {
		return nil, err
	}
	if text == nil {
		return &File{IsMissing: true}, nil
	}
	return Parse(file, text)
}

// Parse reads the text of a file, named for errors, with Read's error.
func Parse(file string, text []byte) (*File, error) {
	reader, top := configfile.NewReader(file, text)
	fields := reader.Fields(top, "limits")
	limits, ok := fields["limits"]
	if fields != nil && !ok {
		reader.Fault(top, "limits is required, such as limits: {} for none")
	}
	all, err := limitfile.Parse(file, lines(reader, reader.Pairs(limits, "from names to limits, such as api: funnel 100, 10/s")))
	f := &File{}
	if err := errors.Join(reader.Err(), err, f.add(file, all)); err != nil {
		return nil, err
	}
	return f, nil
}

// lines iterates over the lines of a file of limits that say what a map says.
func lines(reader *configfile.Reader, limits []configfile.Place) iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		for _, place := range limits {
			limit, settings := place, []configfile.Place(nil)
			if place.IsMap() {
				limit = place.Missing("limit")
				for _, setting := range reader.Pairs(place, "") {
					if setting.Name == "limit" {
						limit = setting
					} else {
						settings = append(settings, setting)
					}
				}
			}
			if !yield(limit.Line, line(reader, "", place.Name, limit)) {
				return
			}
			for _, setting := range settings {
				if !yield(setting.Line, line(reader, "  ", setting.Name, setting)) {
					return
				}
			}
		}
	}
}

// line returns the line for a key and its value. Nothing in either begins a comment or another key.
func line(reader *configfile.Reader, indent, key string, value configfile.Place) string {
	var texts []string
	switch {
	case value.IsScalar():
		texts = append(texts, value.Text())
	case value.IsList():
		for _, one := range reader.List(value) {
			texts = append(texts, one.Text())
		}
		if texts == nil {
			return "" // no value
		}
	default:
		reader.Fault(value, "%s", example(reader, key, value))
		return ""
	}
	if strings.Contains(key, ":") || strings.TrimSpace(key) != key {
		key = strconv.Quote(key)
	}
	text := key + ": " + strings.Join(texts, ", ")
	if strings.Contains(text, "#") {
		reader.Fault(value, "a # is not accepted")
		return ""
	}
	return indent + text
}

// example says what is accepted in place of a map under the key, or of a missing limit.
func example(reader *configfile.Reader, key string, value configfile.Place) string {
	if !value.IsMap() {
		return "it is required, such as limit: funnel 100, 10/s"
	}
	for _, first := range reader.Pairs(value, "") {
		if slices.Contains([]string{"plan", "share", "ceiling"}, key) && first.IsScalar() {
			return fmt.Sprintf("a map is not accepted here: write %s %s: %s, a line for each", key, first.Name, first.Text())
		}
	}
	return "a text is accepted, as in limit: funnel 100, 10/s or shadow: yes"
}

// AddFile adds the limits of a file that package limitfile of the root module reads. The error joins a
// *configfile.Error for each fault.
func (f *File) AddFile(file string) error {
	limits, err := limitfile.Read(file)
	f.InFile = len(limits)
	return errors.Join(err, f.add(file, limits))
}

// add adds the limits of a file of that name.
func (f *File) add(file string, limits []limitfile.Limit) error {
	var faults []error
	for i := range limits {
		l := &limits[i]
		add := func(name, setting string, limit policy.Policy, of *limitfile.Limit) {
			at := l.Fault(setting, nil)
			f.Add(Named{name, limit, configfile.Place{File: at.File, Line: at.Line, Key: at.Key}, of})
		}
		add(l.Name, "", l.Policy, l)
		for _, plan := range l.Plans {
			add(l.Name+"/plan/"+plan.Name, "plan "+plan.Name, plan.Policy, l)
		}
		if l.Candidate != nil {
			add(Candidate(l.Name), "candidate", l.Candidate, nil)
		}
		if before := f.all[f.known[l.Name]].Place; before.File != file {
			faults = append(faults, l.Fault("", fmt.Errorf("%s has a limit of this name: another name is accepted", before.File)))
		}
	}
	f.Limits = append(f.Limits, limits...)
	return errors.Join(faults...)
}
