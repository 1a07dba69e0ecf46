package httpdoor

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/ral-limiter/ral/cmd/rald/internal/configfile"
	"github.com/ral-limiter/ral/cmd/rald/internal/fault"
)

// reading collects the faults of a file of YAML.
type reading struct {
	file   string
	faults []error
}

// place is a value in a file, with the line of its key and the path to it.
type place struct {
	node *yaml.Node
	line int
	key  string
}

func (r *reading) bad(at place, format string, args ...any) {
	r.faults = append(r.faults, &fault.Error{File: r.file, Line: at.line, Key: at.key, Err: fmt.Errorf(format, args...)})
}

// top returns the value of a file.
func (r *reading) top(text []byte) place {
	top, faults := configfile.Document(r.file, text)
	r.faults = append(r.faults, faults...)
	switch {
	case top != nil:
		return place{node: resolved(top), line: top.Line}
	case len(faults) > 0:
		return place{}
	}
	return place{node: &yaml.Node{Kind: yaml.MappingNode}} // nothing but comments
}

func resolved(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias // which is no alias
	}
	return n
}

// fields returns the values of a map, of which the keys are accepted. It is nil for what is no
// map, and that is a fault unless the file has one already that hides it.
func (r *reading) fields(at place, accepted ...string) map[string]place {
	if at.node == nil {
		return nil
	}
	if at.node.Kind != yaml.MappingNode {
		r.bad(at, "a map is accepted, with the keys %s", strings.Join(accepted, ", "))
		return nil
	}
	all := map[string]place{}
	for i := 0; i+1 < len(at.node.Content); i += 2 {
		key, value := at.node.Content[i], at.node.Content[i+1]
		if key.Kind != yaml.ScalarNode {
			r.bad(place{line: key.Line, key: at.key}, "a key here is no text, which alone is accepted")
			continue
		}
		inner := place{resolved(value), key.Line, key.Value}
		if at.key != "" {
			inner.key = at.key + "." + key.Value
		}
		if !slices.Contains(accepted, key.Value) {
			r.bad(inner, "the keys here are %s", strings.Join(accepted, ", "))
		} else {
			all[key.Value] = inner
		}
	}
	return all
}

// list returns the values of a list.
func (r *reading) list(at place) (all []place) {
	if at.node.Kind != yaml.SequenceNode {
		r.bad(at, "a list is accepted")
		return nil
	}
	for i, n := range at.node.Content {
		all = append(all, place{resolved(n), n.Line, fmt.Sprintf("%s[%d]", at.key, i)})
	}
	return all
}

// text returns a value that is neither a map nor a list.
func (at place) text() (string, bool) {
	return at.node.Value, at.node.Kind == yaml.ScalarNode
}

// value is text, or "" for a map or a list.
func (at place) value() string { return at.node.Value }

// isTrue returns the value of a key that is false if it is missing.
func (r *reading) isTrue(m map[string]place, key string) bool {
	at, ok := m[key]
	if !ok {
		return false
	}
	switch at.value() {
	case "true":
		return true
	case "false":
	default:
		r.bad(at, "%.80q: true or false is accepted", at.value())
	}
	return false
}
