package inspect

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Rows stay known by their IDs for as many keys as the handler remembers, and no longer.
func TestRememberedIDsAreBounded(t *testing.T) {
	var s shown[int]
	const last = 10 * maxShown
	for i := range last + 1 {
		s.add(fmt.Sprint(i), i)
		if i%(maxShown-1) == 0 {
			key, ok := s.key("0") // looked at of late
			assert.True(t, ok && key == 0, i)
		}
		assert.LessOrEqual(t, len(s.young)+len(s.old), 2*maxShown)
	}
	for i, known := range map[int]bool{1: false, maxShown: false, last - maxShown + 10: true, last: true} {
		key, ok := s.key(fmt.Sprint(i))
		assert.Equal(t, known, ok, i)
		assert.Equal(t, known, key == i && ok)
	}
}
