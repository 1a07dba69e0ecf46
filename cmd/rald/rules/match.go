package rules

import "strings"

// Set is the rules of all domains. It never changes, and any number of goroutines may use it.
// The zero Set has none.
type Set struct {
	domains map[string]*Domain
	rules   []*Rule // in the order in which they were read
}

// Rules returns all rules, in the order in which they were read.
func (s *Set) Rules() []*Rule { return s.rules }

// Domain returns the domain of that name, or nil.
func (s *Set) Domain(name string) *Domain { return s.domains[name] }

// Dump describes each rule in a line.
func (s *Set) Dump() string {
	var text strings.Builder
	for _, r := range s.rules {
		text.WriteString(r.dump())
		text.WriteByte('\n')
	}
	return text.String()
}

// Domain is the rules of a domain. No two applications share one.
type Domain struct {
	// AllOrNothing makes refused requests of the domain consume nothing.
	AllOrNothing bool

	file string
	root node
}

// node is a level of a tree of descriptors. Its children are found by their key, or by their
// key and value joined by an underscore.
type node struct {
	children  map[string]*node
	wildcards []wildcard // in the order in which they were read
	rule      *Rule      // nil if there is none
	// shared is set if all values that a wildcard matches share the rule's limit.
	shared bool
}

// wildcard is a child whose key or value ends with an asterisk.
type wildcard struct {
	text   string // as it is configured, with the asterisk
	prefix string // without
	node   *node
}

// Entry is a key with a value, of a descriptor.
type Entry interface {
	GetKey() string
	GetValue() string
}

// Match is the rule of a descriptor.
type Match struct {
	// Rule is nil if the descriptor has none.
	Rule *Rule
	// Shared has for each entry the pattern that stands for its value, because all values that
	// match it share the limit, or "". It is nil if there is no pattern.
	Shared []string
}

// Find returns the rule at the end of the way that the entries lead through the domain's
// tree. At each level the entry's key and value are looked for together, then among the
// wildcards in their order, then the key alone. A way that ends before the entries do, or
// that the entries end on, has no rule.
func Find[E Entry](d *Domain, entries []E) (m Match) {
	at := &d.root
	var room [128]byte
	text := room[:0]
	for i, e := range entries {
		text = append(append(append(text[:0], e.GetKey()...), '_'), e.GetValue()...)
		next := at.children[string(text)]
		if next == nil {
			if w := at.wildcard(text); w != nil {
				next = w.node
				if next.shared {
					if m.Shared == nil {
						m.Shared = make([]string, len(entries))
					}
					m.Shared[i] = strings.TrimPrefix(w.text, e.GetKey()+"_")
				}
			}
		}
		if next == nil {
			next = at.children[e.GetKey()]
		}
		switch {
		case next == nil:
			return Match{}
		case i == len(entries)-1:
			if next.rule == nil {
				return Match{}
			}
			m.Rule = next.rule
		}
		at = next
	}
	return m
}

// wildcard returns the first wildcard that matches a key and value, or nil.
func (n *node) wildcard(text []byte) *wildcard {
	for i := range n.wildcards {
		w := &n.wildcards[i]
		if len(text) >= len(w.prefix) && string(text[:len(w.prefix)]) == w.prefix {
			return w
		}
	}
	return nil
}
