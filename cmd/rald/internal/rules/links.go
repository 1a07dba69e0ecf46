package rules

import (
	"fmt"

	"github.com/ral-limiter/ral/cmd/rald/internal/configfile"
)

// links are the descriptors and names of all files that may have no effect because of others.
type links struct {
	patterns []pattern
	named    map[nameIn]bool
	replaced []replaced
}

// pattern is a descriptor that other descriptors of its level may leave no requests.
type pattern struct {
	level, node *node
	// text has asterisks.
	text  string
	place configfile.Place
}

type nameIn struct{ domain, name string }

type replaced struct {
	name  nameIn
	place configfile.Place
}

func (l *links) faults() (all []error) {
	for _, pattern := range l.patterns {
		for i := range pattern.level.wildcards {
			wildcard := &pattern.level.wildcards[i]
			if wildcard.node == pattern.node {
				break
			}
			if wildcard.covers(pattern.text) {
				all = append(all, pattern.place.Error(fmt.Errorf("%q comes first and matches all that this descriptor does: %w", wildcard.text, configfile.ErrUnused)))
				break
			}
		}
	}
	for _, replaced := range l.replaced {
		if !l.named[replaced.name] {
			all = append(all, replaced.place.Error(fmt.Errorf("no rate_limit of %s has the name %q: %w", replaced.name.domain, replaced.name.name, configfile.ErrUnused)))
		}
	}
	return all
}
