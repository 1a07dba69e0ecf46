package bench

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRecordersKeepRoundsAndTheirSum(t *testing.T) {
	r := newRecorders(2, newTape)
	r.of(0).Record(1)
	r.of(1).Record(2)
	r.endRound(true)
	r.of(1).Record(3)
	r.endRound(true)
	r.endRound(true) // no call was timed
	r.of(0).Record(4)
	r.endRound(false) // interrupted

	require.Len(t, r.rounds, 2)
	assert.EqualValues(t, 2, r.rounds[0].Calls)
	assert.EqualValues(t, 1, r.rounds[1].Calls)
	assert.EqualValues(t, 4, r.latency().Calls)
}
