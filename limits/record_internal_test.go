package limits

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestLinesAreLostIfTheDiskIsSlow(t *testing.T) {
	r := &record{full: make(chan []recordLine, recordBuffers+1), free: make(chan []recordLine, recordBuffers+1)}
	r.free <- nil
	for range 3_000 {
		r.add(recordLine{verb: "take", hash: 1 << 63})
	}
	kept := len(<-r.full) + len(r.mu.lines)
	assert.Empty(t, r.full)
	assert.EqualValues(t, 3_000, kept+int(r.lost.Load()))
	assert.Greater(t, r.lost.Load(), uint64(900))
}
