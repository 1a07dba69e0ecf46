package rules

import (
	"bytes"
	"strings"
)

// Set is the rules of all domains. It never changes. The zero Set has no rules.
type Set struct {
	domains map[string]*Domain
	// rules are in the order of reading.
	rules  []*Rule
	unused []error
}

// Rules returns all rules, in order of reading.
func (s *Set) Rules() []*Rule { return s.rules }

// Unused returns a *configfile.Error for each key of the reference that has no effect here: keys of
// its metrics.
func (s *Set) Unused() []error { return s.unused }

// Domain returns a domain, or nil.
func (s *Set) Domain(name string) *Domain { return s.domains[name] }

// Dump describes each rule in a line.
func (s *Set) Dump() string {
	var text strings.Builder
	for _, rule := range s.rules {
		text.WriteString(rule.dump())
		text.WriteByte('\n')
	}
	return text.String()
}

// Domain is the rules of a domain, for a single application.
type Domain struct {
	// AllOrNothing makes refused requests of the domain consume nothing.
	AllOrNothing bool

	file string
	root node
}

// node is a level of a tree of descriptors. Children are found by key, or by key_value.
type node struct {
	children map[string]*node
	// wildcards are in the order of reading.
	wildcards []wildcard
	// rule is nil if there is none.
	rule *Rule
	// shared means that all values that a wildcard matches share the rule's limit.
	shared bool
}

// wildcard is a child with asterisks in its key or value, each for any text.
type wildcard struct {
	// text is the text as configured, with the asterisks.
	text string
	// parts are the parts between the asterisks.
	parts [][]byte
	node  *node
}

// matches looks for each part at its first place after the parts before it.
func (w *wildcard) matches(text []byte) bool {
	last := len(w.parts) - 1
	rest, ok := bytes.CutPrefix(text, w.parts[0])
	for _, part := range w.parts[1:last] {
		i := bytes.Index(rest, part)
		if !ok || i < 0 {
			return false
		}
		rest = rest[i+len(part):]
	}
	return ok && bytes.HasSuffix(rest, w.parts[last])
}

// covers reports whether it matches all that a pattern matches: the byte 255, which no rule has,
// stands for the pattern's asterisks.
func (w *wildcard) covers(pattern string) bool {
	return w.matches([]byte(strings.ReplaceAll(pattern, "*", "\xff")))
}

// Entry is a key and value of a descriptor.
type Entry interface {
	GetKey() string
	GetValue() string
}

// Match is the rule of a descriptor.
type Match struct {
	// Rule is nil for none.
	Rule *Rule
	// Shared has for each entry "" or the pattern that replaces its value, because all matching
	// values share the limit. It is nil without a pattern.
	Shared []string
}

// Find follows the entries through the domain's tree and returns the last rule. Each level looks up
// key and value together, then the wildcards in order, then the key alone. There is no match if the
// tree ends before the entries, or has no rule for the last.
func Find[E Entry](domain *Domain, entries []E) (match Match) {
	level := &domain.root
	var room [128]byte
	text := room[:0]
	for i, e := range entries {
		text = append(append(append(text[:0], e.GetKey()...), '_'), e.GetValue()...)
		next := level.children[string(text)]
		if next == nil {
			if wildcard := level.wildcard(text); wildcard != nil {
				next = wildcard.node
				if next.shared {
					if match.Shared == nil {
						match.Shared = make([]string, len(entries))
					}
					match.Shared[i] = strings.TrimPrefix(wildcard.text, e.GetKey()+"_")
				}
			}
		}
		if next == nil {
			next = level.children[e.GetKey()]
		}
		switch {
		case next == nil:
			return Match{}
		case i == len(entries)-1:
			if next.rule == nil {
				return Match{}
			}
			match.Rule = next.rule
		}
		level = next
	}
	return match
}

// wildcard returns the first wildcard that matches a key and value, or nil.
func (n *node) wildcard(text []byte) *wildcard {
	for i := range n.wildcards {
		if w := &n.wildcards[i]; w.matches(text) {
			return w
		}
	}
	return nil
}
