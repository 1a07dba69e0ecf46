package frequent

import (
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// call counts a call of a key that hashes to itself.
func (s *Sample[K]) call(key K, hash uint64) (drawn bool) {
	weight := s.Draw()
	if weight != 0 {
		s.Add(hash, key, weight)
	}
	return weight != 0
}

// counts returns the certain counts of the keys.
func (s *Sample[K]) counts() map[K]uint64 {
	counts := map[K]uint64{}
	all, _, _ := s.All()
	for _, k := range all {
		counts[k.Key] += k.Count - k.Over
	}
	return counts
}

func TestSampleHasTheCurrentWindowAndTheLast(t *testing.T) {
	var s Sample[int]
	assert.False(t, s.call(1, 1), "it has not begun")
	assert.Zero(t, s.Turn(7))
	s.Start(4, 100, 10)
	for range 3 {
		s.call(1, 1)
	}
	assert.Zero(t, s.Turn(109))
	s.call(2, 2)
	assert.Equal(t, map[int]uint64{1: 3, 2: 1}, s.counts())
	assert.EqualValues(t, 1, s.Turn(110))
	s.call(1, 1)
	assert.Equal(t, map[int]uint64{1: 4, 2: 1}, s.counts())
	all, _, _ := s.All()
	require.Len(t, all, 2, "one counter a key")
	from, to := s.Span()
	assert.Equal(t, []int64{10, 110}, []int64{from, to})
	assert.EqualValues(t, 1, s.Turn(309), "the window is late")
	assert.Equal(t, map[int]uint64{1: 1}, s.counts())
	assert.EqualValues(t, 2, s.Turn(509))
	assert.Empty(t, s.counts(), "both windows are over")
	from, to = s.Span()
	assert.Equal(t, []int64{509, 509}, []int64{from, to})
	s.Turn(400)
	_, to = s.Span()
	assert.EqualValues(t, 509, to, "the latest instant")
}

// A call that was drawn before a window began counts in the window before. Otherwise it would count there with a
// weight that the calls of the new window do not have.
func TestLateSampleCountsInTheLastWindow(t *testing.T) {
	var s Sample[int]
	s.Start(4, 100, 10)
	for i := range 2 * samplesPerHalving {
		s.Add(1, 1, s.Weight())
		require.EqualValues(t, 1<<((i+1)/samplesPerHalving), s.Weight())
	}
	_, _, weight := s.All()
	require.EqualValues(t, 4, weight)
	s.Turn(110)
	require.EqualValues(t, 1, s.Weight())
	s.Add(2, 2, 4)
	s.Turn(210)
	assert.Empty(t, s.counts(), "it went with the window before")
}

// The chance falls with the samples, down to 1 in MaxWeight, and the sum of the weights estimates the calls.
func TestSampleEstimates(t *testing.T) {
	const calls = 5_000_000
	var s Sample[int]
	s.Start(8, 100, 0)
	samples := 0
	for i := range calls {
		if s.call(i%4/3, uint64(i%4/3)) {
			samples++
		}
	}
	assert.EqualValues(t, MaxWeight, s.Weight())
	assert.Less(t, samples, 30_000)
	counts := s.counts()
	assert.InEpsilon(t, calls*3/4, counts[0], .1)
	assert.InEpsilon(t, calls/4, counts[1], .1)
}

func TestSampleIsSafeForConcurrentUse(t *testing.T) {
	var s Sample[int]
	s.Start(16, 1000, 0)
	var group sync.WaitGroup
	for caller := range 4 {
		group.Go(func() {
			random := rand.New(rand.NewPCG(uint64(caller), 1))
			for i := range 1000 {
				key := random.IntN(16)
				s.call(key, uint64(key))
				s.Turn(int64(i))
				s.counts()
			}
		})
	}
	group.Wait()
	sum := uint64(0)
	for _, count := range s.counts() {
		sum += count
	}
	assert.InEpsilon(t, 4000, sum, .2)
}
