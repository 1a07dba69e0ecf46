package configfile

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Place is a value in a file, with its key's line and path. The zero Place is a missing value.
type Place struct {
	File string
	// Line is 0 if it is unknown.
	Line int
	// Key is its path.
	Key string
	// Name is its key in its map.
	Name string

	node *yaml.Node
	// covered is the map under this merged map.
	covered *Place
	// isCovered means that the value is in a map under a merged map.
	isCovered bool
}

// Error returns an Error at the place.
func (p Place) Error(err error) *Error {
	return &Error{File: p.File, Line: p.Line, Key: p.Key, Err: err}
}

// Missing returns the place of a key missing in the map.
func (p Place) Missing(name string) Place {
	return Place{File: p.File, Line: p.Line, Key: strings.TrimPrefix(p.Key+"."+name, "."), Name: name}
}

// IsNull reports whether the value is null or missing.
func (p Place) IsNull() bool {
	var value any
	return p.node == nil || p.node.ShortTag() == "!!null" && p.node.Decode(&value) == nil
}

// IsScalar reports whether the value is neither a map nor a list.
func (p Place) IsScalar() bool { return p.node != nil && p.node.Kind == yaml.ScalarNode }

// IsMap reports whether the value is a map.
func (p Place) IsMap() bool { return p.node != nil && p.node.Kind == yaml.MappingNode }

// IsList reports whether the value is a list.
func (p Place) IsList() bool { return p.node != nil && p.node.Kind == yaml.SequenceNode }

// IsQuoted reports whether the value is text in quotes or a block.
func (p Place) IsQuoted() bool { return p.IsScalar() && p.node.Style&^yaml.TaggedStyle != 0 }

// Decode stores the value as package yaml does.
func (p Place) Decode(to any) error { return p.node.Decode(to) }

// Text returns a scalar value, otherwise "".
func (p Place) Text() (text string) {
	if p.IsScalar() && p.node.Decode(&text) != nil {
		return p.node.Value
	}
	return text
}

// Reader reads the values of a file and collects faults. Aliases stand for their values, and maps
// may be merged by the key <<, in order.
type Reader struct {
	file   string
	unused []string
	faults []error
	// room is left for values, as aliases multiply them.
	room int
}

// spare is the number of values of a file beyond its bytes.
const spare = 1 << 20

// NewReader returns a reader for the text of a file, and its top value, an empty map if there are
// only comments. Misplaced keys in the list unused are ErrUnused.
func NewReader(file string, text []byte, unused ...string) (*Reader, Place) {
	reader := &Reader{file: file, unused: unused, room: len(text) + spare}
	top, faults := document(file, text)
	reader.faults = faults
	switch {
	case top != nil && isCircular(top, map[*yaml.Node]bool{}):
		reader.faults = append(reader.faults, &Error{File: file, Line: top.Line, Err: errors.New("an anchor here has an alias of itself")})
	case top != nil:
		return reader, Place{File: file, Line: top.Line, node: resolved(top)}
	case len(faults) == 0:
		return reader, Place{File: file, node: &yaml.Node{Kind: yaml.MappingNode}}
	}
	return reader, Place{File: file}
}

// Beside returns the top value of another file in the same directory. ok is false without the file,
// and after a fault.
func (r *Reader) Beside(name string) (top Place, ok bool) {
	file, text, err := ReadIn(filepath.Dir(r.file), name)
	if text == nil || err != nil {
		if err != nil {
			r.faults = append(r.faults, err)
		}
		return top, false
	}
	other, top := NewReader(file, text)
	r.faults = append(r.faults, other.faults...)
	r.room += other.room
	return top, len(other.faults) == 0
}

// isCircular reports whether a node has an alias of itself. done[n] is true while visiting node.
func isCircular(node *yaml.Node, done map[*yaml.Node]bool) bool {
	if under, known := done[node]; known {
		return under
	}
	done[node] = true
	if node.Kind == yaml.AliasNode && isCircular(node.Alias, done) {
		return true
	}
	for _, inner := range node.Content {
		if isCircular(inner, done) {
			return true
		}
	}
	done[node] = false
	return false
}

func resolved(node *yaml.Node) *yaml.Node {
	if node.Kind == yaml.AliasNode {
		// An alias leads to no alias.
		return node.Alias
	}
	return node
}

// Fault adds an Error at a place.
func (r *Reader) Fault(at Place, format string, args ...any) {
	r.faults = append(r.faults, at.Error(fmt.Errorf(format, args...)))
}

// Faults returns an *Error for each fault so far.
func (r *Reader) Faults() []error { return r.faults }

// Err joins Faults.
func (r *Reader) Err() error { return errors.Join(r.faults...) }

func (r *Reader) admit(at Place) bool {
	if r.room--; r.room == 0 {
		r.Fault(at, "the aliases of this file stand for more values than are accepted")
	}
	return r.room > 0
}

// Pairs returns the values of a map, and all values of a key that is there twice, which is a fault already. Others
// are a fault that shows accepted, and give nil.
func (r *Reader) Pairs(place Place, accepted string) []Place {
	if place.node == nil {
		return nil
	}
	if place.node.Kind != yaml.MappingNode {
		r.Fault(place, "a map is accepted, %s", accepted)
		return nil
	}
	return r.merge([]Place{}, map[string]int{}, place)
}

// merge adds the values of a map to all, with known indexes. A value replaces an earlier value of
// its key, or covers it if both are maps.
func (r *Reader) merge(all []Place, known map[string]int, place Place) []Place {
	if place.covered != nil {
		all = r.merge(all, known, *place.covered)
		for i := range all {
			all[i].isCovered = true
		}
	}
	here := map[string]bool{}
	for i := 0; i+1 < len(place.node.Content); i += 2 {
		key, value := resolved(place.node.Content[i]), resolved(place.node.Content[i+1])
		inner := place.Missing(key.Value)
		inner.Line, inner.node = place.node.Content[i].Line, value
		switch {
		case !r.admit(inner):
			return all
		case key.Kind != yaml.ScalarNode:
			inner.Key = place.Key
			r.Fault(inner, "a key here is no text, which alone is accepted")
			continue
		case key.ShortTag() == "!!merge":
			from := []*yaml.Node{value}
			if value.Kind == yaml.SequenceNode {
				from = value.Content
			}
			// The first map wins.
			for _, node := range slices.Backward(from) {
				if node = resolved(node); node.Kind != yaml.MappingNode {
					r.Fault(inner, "a map is accepted, or a list of maps")
					continue
				}
				from := place
				from.node, from.covered = node, nil
				all = r.merge(all, known, from)
			}
			continue
		}
		before, ok := known[inner.Name]
		if isTwice := here[inner.Name]; !ok || isTwice {
			known[inner.Name], here[inner.Name] = len(all), true
			all = append(all, inner)
			continue
		}
		if old := all[before]; old.node.Kind == yaml.MappingNode && value.Kind == yaml.MappingNode {
			inner.covered = &old
		}
		all[before], here[inner.Name] = inner, true
	}
	return all
}

// Fields returns the values of a map by their accepted keys. It is nil if not a map: see Pairs.
func (r *Reader) Fields(at Place, accepted ...string) map[string]Place {
	keys := strings.Join(accepted, ", ")
	pairs := r.Pairs(at, "with the keys "+keys)
	if pairs == nil {
		return nil
	}
	all := map[string]Place{}
	for _, place := range pairs {
		switch {
		case slices.Contains(accepted, place.Name):
			all[place.Name] = place
		case place.isCovered || slices.Contains(r.unused, place.Name):
			r.Fault(place, "%w: this key is unknown here, known: %s", ErrUnused, keys)
		default:
			r.Fault(place, "this key is unknown here, known: %s", keys)
		}
	}
	return all
}

// List returns the values of a list. Other values are a fault.
func (r *Reader) List(place Place) (all []Place) {
	if place.node.Kind != yaml.SequenceNode {
		r.Fault(place, "a list is accepted")
		return nil
	}
	for i, n := range place.node.Content {
		p := Place{File: place.File, Line: n.Line, Key: fmt.Sprintf("%s[%d]", place.Key, i), node: resolved(n)}
		if !r.admit(p) {
			return all
		}
		all = append(all, p)
	}
	return all
}

// Bool returns the value of a key, false if missing.
func (r *Reader) Bool(places map[string]Place, key string) bool {
	switch place, ok := places[key]; {
	case !ok || place.Text() == "false":
	case place.Text() == "true":
		return true
	default:
		r.Fault(place, "%.80q: true or false is accepted", place.Text())
	}
	return false
}
