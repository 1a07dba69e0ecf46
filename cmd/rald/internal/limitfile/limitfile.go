// Package limitfile reads the limits that are configured by name.
package limitfile

import (
	"errors"
	"fmt"
	"strings"

	"github.com/ral-limiter/ral/cmd/rald/internal/configfile"
	"github.com/ral-limiter/ral/internal/core/warn"
	"github.com/ral-limiter/ral/limitfile"
	"github.com/ral-limiter/ral/policy"
)

// Name is the name of the file in its directory.
const Name = "limits.yaml"

// File is the contents of a file. The zero File has no limits.
type File struct {
	// Limits has the limits by name.
	Limits map[string]policy.Policy
	// WarnAt has the shares of limits at which their keys are warned of, as engine.Config.WarnAt.
	WarnAt map[string][]float64

	// IsMissing reports whether Read has found no file.
	IsMissing bool
	// InFile counts the limits of AddFile.
	InFile int

	// names are in the order of their adding.
	names []string
	// places are the places of the limits.
	places map[string]configfile.Place
}

// Names returns the names of the limits, in the order of the file.
func (f *File) Names() []string { return f.names }

// Add adds another file's limit with its place. Parse accepts no such name.
func (f *File) Add(name string, limit policy.Policy, place configfile.Place) {
	if f.Limits == nil {
		f.Limits, f.places, f.WarnAt = map[string]policy.Policy{}, map[string]configfile.Place{}, map[string][]float64{}
	}
	if _, twice := f.Limits[name]; !twice {
		f.names = append(f.names, name)
	}
	f.Limits[name], f.places[name] = limit, place
}

// At returns the place of the limit of that name.
func (f *File) At(name string) configfile.Place { return f.places[name] }

// Read reads the file in the directory, a map from names to texts for policy.Parse:
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
	f := &File{}
	r, top := configfile.NewReader(file, text)
	fields := r.Fields(top, "limits")
	limits, ok := fields["limits"]
	switch {
	case fields != nil && !ok:
		r.Fault(top, "limits is required, such as limits: {} for none")
	case ok:
		for _, place := range r.Pairs(limits, "from names to limits, such as api: funnel 100, 10/s") {
			limit, shares := place, []float64(nil)
			if place.IsMap() {
				fields := r.Fields(place, "limit", "warn-at")
				if limit, ok = fields["limit"]; !ok {
					limit = place.Missing("limit")
				}
				shares = sharesOf(r, fields["warn-at"])
			}
			if p, err := entry(place.Name, limit); err != nil {
				r.Fault(limit, "%w", err)
			} else {
				f.Add(place.Name, p, place)
				f.WarnAt[place.Name] = shares
			}
		}
	}
	if err := r.Err(); err != nil {
		return nil, err
	}
	return f, nil
}

// AddFile adds the limits of a file that package limitfile of the root module reads. A plan is a limit
// NAME/plan/PLAN. The error joins a *configfile.Error for each fault.
func (f *File) AddFile(file string) error {
	all, err := limitfile.Read(file)
	faults := []error{err}
	for i := range all {
		l := &all[i]
		for _, setting := range l.Settings() {
			if plan := strings.HasPrefix(setting, "plan "); !plan && setting != "per" && setting != "warn-at" {
				faults = append(faults, l.Fault(setting, errors.New("rald has no such setting: per, plan and warn-at are accepted")))
			}
		}
		f.addFrom(l, l.Name, "", l.Policy)
		for _, plan := range l.Plans {
			f.addFrom(l, l.Name+"/plan/"+plan.Name, "plan "+plan.Name, plan.Policy)
		}
		if _, err := policy.Parse(l.Name); err == nil {
			faults = append(faults, l.Fault("", errIsLimit))
		} else if before := f.places[l.Name]; before.File != file {
			faults = append(faults, l.Fault("", fmt.Errorf("%s has a limit of this name: another name is accepted", before.File)))
		}
	}
	return errors.Join(faults...)
}

// addFrom adds a limit of l unless another file has it.
func (f *File) addFrom(l *limitfile.Limit, name, setting string, limit policy.Policy) {
	if _, twice := f.Limits[name]; !twice {
		place := l.Fault(setting, nil)
		f.Add(name, limit, configfile.Place{File: place.File, Line: place.Line, Key: place.Key, Name: name})
		f.WarnAt[name] = l.WarnAt
		f.InFile++
	}
}

// Values returns the limits as package limitfile of the root module has them.
func (f *File) Values() []limitfile.Limit {
	all := make([]limitfile.Limit, 0, len(f.names))
	for _, name := range f.names {
		all = append(all, limitfile.Limit{Name: name, Policy: f.Limits[name], WarnAt: f.WarnAt[name]})
	}
	return all
}

var errIsLimit = errors.New("this name is the text of a limit, which clients may send")

// maxName is in bytes.
const maxName = 64

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

// sharesOf reads the shares of a warn-at, none if it is missing.
func sharesOf(r *configfile.Reader, place configfile.Place) []float64 {
	var shares warn.Shares
	if place == (configfile.Place{}) {
		return nil
	}
	fault := (*policy.FieldError)(nil)
	if err := place.Decode(&shares); err != nil || place.IsNull() {
		r.Fault(place, "a list of shares is accepted, such as [0.8, 0.95]")
	} else if errors.As(shares.Check("", "warn-at"), &fault) {
		r.Fault(place, "%s is %v: %s is accepted", fault.Field, fault.Value, fault.Want)
	}
	return shares
}

func entry(name string, place configfile.Place) (policy.Policy, error) {
	if !IsName(name, maxName) {
		return nil, fmt.Errorf("a name has 1 to %d letters, digits, dots, dashes and underscores", maxName)
	}
	if _, err := policy.Parse(name); err == nil {
		return nil, errIsLimit
	}
	if !place.IsScalar() {
		return nil, errors.New("the text of a limit is accepted, such as funnel 100, 10/s, or a map with limit and warn-at")
	}
	return policy.Parse(place.Text())
}
