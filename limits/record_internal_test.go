package limits

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestLinesAreLostIfTheDiskIsSlow(t *testing.T) {
	r := &record{full: make(chan []byte, recordBuffers+1), free: make(chan []byte, recordBuffers+1)}
	r.free <- nil
	for range 3_000 {
		r.add("take", 0, statusAdmitted, 1, 0, 1<<63, "")
	}
	kept := string(<-r.full) + string(r.mu.lines)
	assert.Empty(t, r.full)
	lines := 0
	for _, c := range kept {
		if c == '\n' {
			lines++
		}
	}
	assert.EqualValues(t, 3_000, lines+int(r.lost.Load()))
	assert.Greater(t, r.lost.Load(), uint64(900))
}
