package table

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A reader at an unlinked node, first in its list or not, still reaches those behind it.
func TestSlotLeadsOnFromAnUnlinkedNode(t *testing.T) {
	for _, gone := range []string{"first", "middle"} {
		t.Run(gone, func(t *testing.T) {
			r := newRig[string](t, Options{})
			r.hasher = oneHash[string]
			entries := map[string]*Entry[string]{}
			for _, key := range []string{"last", "middle", "first"} {
				entries[key] = r.open(key)
				require.True(t, r.take(entries[key], 1))
			}
			standing := nodeOf(r.slotOf(7), entries[gone])
			r.file(r.slotOf(7), standing, 1)
			require.Nil(t, nodeOf(r.slotOf(7), entries[gone]))
			last, _ := waiting(standing, 7, "last")
			require.Same(t, entries["last"], last)
		})
	}
}

func nodeOf[K comparable](s *slot[K], e *Entry[K]) *node[K] {
	n := s.Load()
	for n != nil && n.entry != e {
		n = n.next.Load()
	}
	return n
}
