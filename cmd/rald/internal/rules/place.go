package rules

import (
	"strconv"

	"go.yaml.in/yaml/v3"
)

// place is a value in a file, for errors to say where it is. Its node is nil if it cannot be
// found. The files are read by another parser, which knows no lines: in one that this parser cannot
// read nothing is found.
type place struct {
	node *yaml.Node
	line int // of the last node on the way that was found
	path string
}

// deepest bounds the aliases that are followed in turn, of which some lead in a circle.
const deepest = 100

// key returns the place of the value of a key in a map. Its line is that of the key.
func (p place) key(name string) place {
	next := place{line: p.line, path: name}
	if p.path != "" {
		next.path = p.path + "." + name
	}
	if key, value := valueOf(p.node, name, deepest); key != nil {
		next.node, next.line = value, key.Line
	}
	return next
}

// valueOf returns the last pair of that key, or the first that is merged into the map.
func valueOf(n *yaml.Node, name string, depth int) (key, value *yaml.Node) {
	n = resolved(n)
	if n == nil || n.Kind != yaml.MappingNode || depth == 0 {
		return nil, nil
	}
	for i := len(n.Content) - 2; i >= 0; i -= 2 {
		if n.Content[i].Value == name {
			return n.Content[i], n.Content[i+1]
		}
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value != "<<" {
			continue
		}
		from := []*yaml.Node{n.Content[i+1]}
		if list := resolved(from[0]); list != nil && list.Kind == yaml.SequenceNode {
			from = list.Content
		}
		for _, other := range from {
			if key, value := valueOf(other, name, depth-1); key != nil {
				return key, value
			}
		}
	}
	return nil, nil
}

// index returns the place of an element of a list.
func (p place) index(i int) place {
	next := place{line: p.line, path: p.path + "[" + strconv.Itoa(i) + "]"}
	if n := resolved(p.node); n != nil && n.Kind == yaml.SequenceNode && i < len(n.Content) {
		next.node, next.line = n.Content[i], n.Content[i].Line
	}
	return next
}

// resolved returns what an alias stands for.
func resolved(n *yaml.Node) *yaml.Node {
	for range deepest {
		if n == nil || n.Kind != yaml.AliasNode {
			return n
		}
		n = n.Alias
	}
	return nil
}
