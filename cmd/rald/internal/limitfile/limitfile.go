// Package limitfile reads the limits that are configured by name.
package limitfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/ral-limiter/ral/cmd/rald/internal/configfile"
	"github.com/ral-limiter/ral/cmd/rald/internal/fault"
	"github.com/ral-limiter/ral/policy"
	"go.yaml.in/yaml/v3"
)

// Name is the name of the file in its directory, and OtherName one that is refused.
const (
	Name      = "limits.yaml"
	OtherName = "limits.yml"
)

// File is what a file says. The zero File has no limits.
type File struct {
	// Limits are the limits by their names.
	Limits map[string]policy.Policy

	names  []string               // in the order in which they were added
	places map[string]fault.Error // where each is
}

// Names returns the names of the limits, in the order of the file.
func (f *File) Names() []string { return f.names }

// Add adds a limit that another file has, at a place. Its name is none that Parse accepts.
func (f *File) Add(name string, limit policy.Policy, at fault.Error) {
	if f.Limits == nil {
		f.Limits, f.places = map[string]policy.Policy{}, map[string]fault.Error{}
	}
	if _, twice := f.Limits[name]; !twice {
		f.names = append(f.names, name)
	}
	f.Limits[name], f.places[name] = limit, at
}

// Fault returns a *fault.Error about the limit of that name.
func (f *File) Fault(name string, err error) error {
	at := f.places[name]
	at.Err = err
	return &at
}

// Read reads the file in the directory. It is a map from names to the texts of limits, as
// policy.Parse has them:
//
//	limits:
//	  api:   funnel 100, 10/s
//	  login: at most 5/10m
//
// A directory without the file has none. The error joins a *fault.Error for each fault.
func Read(dir string) (*File, error) {
	file := filepath.Join(dir, Name)
	text, err := configfile.Read(file)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(dir); err != nil {
			return nil, err
		}
		other := filepath.Join(dir, OtherName)
		if _, err := os.Stat(other); err == nil {
			return nil, &fault.Error{File: other, Err: fmt.Errorf("this file is not read: the name %s is accepted", Name)}
		}
		return &File{}, nil
	}
	if err != nil {
		return nil, err
	}
	return Parse(file, text)
}

// Parse reads the text of a file, whose name is for errors. The error is that of Read.
func Parse(file string, text []byte) (*File, error) {
	f := &File{}
	top, faults := configfile.Document(file, text)
	if top == nil {
		return f, errors.Join(faults...)
	}
	bad := func(at *yaml.Node, key, format string, args ...any) {
		faults = append(faults, &fault.Error{File: file, Line: at.Line, Key: key, Err: fmt.Errorf(format, args...)})
	}
	if top.Kind != yaml.MappingNode {
		bad(top, "", "a map with the key limits is accepted")
		return nil, errors.Join(faults...)
	}
	for key, value := range pairs(top) {
		switch {
		case key.Kind != yaml.ScalarNode:
			bad(key, "", notText)
		case key.Value != "limits":
			bad(key, key.Value, "the only key here is limits")
		case value.Kind != yaml.MappingNode:
			bad(value, key.Value, "a map from names to limits is accepted, such as api: funnel 100, 10/s")
		default:
			for name, limit := range pairs(value) {
				if name.Kind != yaml.ScalarNode {
					bad(name, "limits", notText)
					continue
				}
				p, err := entry(name.Value, limit)
				if err != nil {
					bad(name, "limits."+name.Value, "%w", err)
					continue
				}
				f.Add(name.Value, p, fault.Error{File: file, Line: name.Line, Key: "limits." + name.Value})
			}
		}
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return f, nil
}

// notText is the fault of a key that is an alias, a list or a map.
const notText = "a key here is no text, which alone is accepted"

// pairs goes through the keys and values of a map. For an alias it has what that stands for.
func pairs(m *yaml.Node) func(yield func(key, value *yaml.Node) bool) {
	return func(yield func(key, value *yaml.Node) bool) {
		for i := 0; i+1 < len(m.Content); i += 2 {
			value := m.Content[i+1]
			if value.Kind == yaml.AliasNode {
				value = value.Alias // which is no alias
			}
			if !yield(m.Content[i], value) {
				return
			}
		}
	}
}

// longestName is the most bytes of the name of a limit.
const longestName = 64

func isName(name string) bool {
	for _, c := range []byte(name) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return name != "" && len(name) <= longestName
}

func entry(name string, limit *yaml.Node) (policy.Policy, error) {
	if !isName(name) {
		return nil, fmt.Errorf("a name has 1 to %d letters, digits, dots, dashes and underscores", longestName)
	}
	if _, err := policy.Parse(name); err == nil {
		return nil, errors.New("this name is the text of a limit, which clients may send")
	}
	if limit.Kind != yaml.ScalarNode {
		return nil, errors.New("the text of a limit is accepted, such as funnel 100, 10/s")
	}
	return policy.Parse(limit.Value)
}
