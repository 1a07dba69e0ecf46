package bench

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestNamesDifferAndHaveARealisticLength(t *testing.T) {
	const n = 200_000
	seen := make(map[string]bool, n)
	for _, name := range newStream(upTo(0, n)).keys {
		require.Len(t, name, keyLength)
		seen[name] = true
	}
	assert.Len(t, seen, n)
}

func TestPartsOfAStreamMakeUpTheWhole(t *testing.T) {
	for _, order := range [][]uint32{{7}, {7, 3, 7, 8, 0}, upTo(10, 1000)} {
		s := newStream(order)
		var parts stream
		for i := range 7 {
			p := s.part(i, 7)
			parts.keys, parts.order = append(parts.keys, p.keys...), append(parts.order, p.order...)
		}
		assert.Equal(t, s, parts)
		for i, key := range s.keys {
			assert.Equal(t, string(appendKey(nil, order[i])), key)
		}
	}
}

func TestZipfIsSkewedByItsLaw(t *testing.T) {
	const keys, draws = 100_000, 200_000
	times := make([]float64, keys)
	for _, i := range drawZipf(draws, keys, rand.New(rand.NewPCG(1, 2))) {
		require.Less(t, i, uint32(keys))
		times[i]++
	}
	assert.InEpsilon(t, 10, times[0]/times[9], 0.15, "the first key is drawn ten times as often as the tenth")
	assert.InEpsilon(t, 100, times[0]/times[99], 0.3, "and a hundred times as often as the hundredth")

	first := 0.0
	for _, n := range times[:100] {
		first += n
	}
	assert.InDelta(t, 0.44, first/draws, 0.03, "the share of the first hundred")
}

func TestDrawStreamsDifferByCallerAndNotByRun(t *testing.T) {
	w := Workload{Keys: 1000, Draw: DrawZipf}
	a, b := drawStreams(w, 2), drawStreams(w, 2)
	assert.Equal(t, a[0].order, b[0].order)
	assert.Equal(t, a[1].order, b[1].order)
	assert.NotEqual(t, a[0].order, a[1].order)
	assert.Zero(t, len(a[0].order)%batch)
	for _, s := range drawStreams(Workload{Keys: 3, Draw: DrawInTurn}, 2) {
		assert.Equal(t, []uint32{0, 1, 2}, s.order)
	}
}

func TestMostAskedAreTheFewestForTheShare(t *testing.T) {
	// Key 2 has half of the calls, key 0 a quarter, keys 1 and 3 an eighth each.
	streams := []stream{newStream([]uint32{2, 2, 0, 1}), newStream([]uint32{2, 2, 0, 3})}
	name := func(i uint32) string { return string(appendKey(nil, i)) }

	assert.Empty(t, mostAsked(streams, 4, 0))
	assert.Equal(t, map[string]struct{}{name(2): {}}, mostAsked(streams, 4, 0.5))
	assert.Equal(t, map[string]struct{}{name(2): {}, name(0): {}}, mostAsked(streams, 4, 0.75))
	assert.Len(t, mostAsked(streams, 4, 1), 4)
}

func TestLimitRefusingRefusesItsShare(t *testing.T) {
	const keys, speed = 100_000, 10e6
	streams := drawStreams(Workload{Keys: keys, Draw: DrawZipf}, 2)
	limit := limitRefusing(streams, keys, 0.5, speed, 0)

	times := make([]float64, keys)
	calls := 0.0
	for _, s := range streams {
		for _, i := range s.order {
			times[i]++
			calls++
		}
	}
	refusedAt := func(speed float64) (share float64) {
		for _, n := range times {
			share += max(n/calls*speed-float64(limit.Count), 0) / speed
		}
		return share
	}
	assert.InDelta(t, 0.5, refusedAt(speed), 0.01)
	assert.Greater(t, refusedAt(speed/3), 0.39, "a third of the speed")
	assert.Less(t, refusedAt(speed*3), 0.61, "three times the speed")
}

func TestStandardWorkloadsHaveNamesOfTheirOwn(t *testing.T) {
	seen := map[string]bool{}
	for _, w := range Standard(1) {
		assert.False(t, seen[w.Name], w.Name)
		assert.NotEmpty(t, w.About)
		assert.True(t, strings.HasSuffix(w.Why, "."), w.Name)
		seen[w.Name] = true
	}
	for _, w := range Standard(0.0001) {
		assert.Positive(t, w.Keys, w.Name)
	}
}

func TestSelect(t *testing.T) {
	all := Standard(1)
	some, err := Select(all, []string{"zipf", "hot-pass", "zipf"})
	require.NoError(t, err)
	assert.Equal(t, []string{"hot-pass", "zipf"}, Names(some))

	_, err = Select(all, []string{"hot-pass", "zipff"})
	require.ErrorContains(t, err, `"zipff"`)
	for _, name := range Names(all) {
		assert.ErrorContains(t, err, name)
	}
}
