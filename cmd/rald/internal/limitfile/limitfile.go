// Package limitfile reads the limits that are configured by name.
package limitfile

import (
	"errors"
	"fmt"

	"github.com/ral-limiter/ral/cmd/rald/internal/configfile"
	"github.com/ral-limiter/ral/policy"
)

const Name = "limits.yaml" // in its directory

// File is the contents of a file. The zero File has no limits.
type File struct {
	Limits map[string]policy.Policy // by name

	// IsMissing reports whether Read has found no file.
	IsMissing bool

	names  []string                    // in the order of their adding
	places map[string]configfile.Place // of the limits
}

// Names returns the names of the limits, in the order of the file.
func (f *File) Names() []string { return f.names }

// Add adds another file's limit with its place. Parse accepts no such name.
func (f *File) Add(name string, limit policy.Policy, at configfile.Place) {
	if f.Limits == nil {
		f.Limits, f.places = map[string]policy.Policy{}, map[string]configfile.Place{}
	}
	if _, twice := f.Limits[name]; !twice {
		f.names = append(f.names, name)
	}
	f.Limits[name], f.places[name] = limit, at
}

// At returns the place of the limit of that name.
func (f *File) At(name string) configfile.Place { return f.places[name] }

// Read reads the file in the directory, a map from names to texts for policy.Parse:
//
//	limits:
//	  api:   funnel 100, 10/s
//	  login: at most 5/10m
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
	f := &File{}
	r, top := configfile.NewReader(file, text)
	fields := r.Fields(top, "limits")
	limits, ok := fields["limits"]
	switch {
	case fields != nil && !ok:
		r.Fault(top, "limits is required, such as limits: {} for none")
	case ok:
		for _, at := range r.Pairs(limits, "from names to limits, such as api: funnel 100, 10/s") {
			if p, err := entry(at); err != nil {
				r.Fault(at, "%w", err)
			} else {
				f.Add(at.Name, p, at)
			}
		}
	}
	if err := r.Err(); err != nil {
		return nil, err
	}
	return f, nil
}

const maxName = 64 // bytes

// IsName reports whether a name has 1 to max letters, digits, dots, dashes and underscores.
func IsName(name string, max int) bool {
	for _, c := range []byte(name) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return name != "" && len(name) <= max
}

func entry(at configfile.Place) (policy.Policy, error) {
	if !IsName(at.Name, maxName) {
		return nil, fmt.Errorf("a name has 1 to %d letters, digits, dots, dashes and underscores", maxName)
	}
	if _, err := policy.Parse(at.Name); err == nil {
		return nil, errors.New("this name is the text of a limit, which clients may send")
	}
	if !at.IsScalar() {
		return nil, errors.New("the text of a limit is accepted, such as funnel 100, 10/s")
	}
	return policy.Parse(at.Text())
}
