package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/policy"
)

// A TakeAll of known keys, or a Tiered, is overtaken at the second key: it decides there again. If
// that refuses now, it gives back to the first, and only the second counts a refusal.
func TestTakeAllDecidesAgainIfOvertaken(t *testing.T) {
	for _, c := range []struct {
		room   int64
		tiered bool
	}{{2, false}, {3, false}, {2, true}, {3, true}} {
		second := &hooked{Policy: funnel(c.room, 1, 24*time.Hour)}
		tiers := openTiered[string](t, Config{Policy: funnel(5, 1, 24*time.Hour)}, second)
		a, b := tiers.Engines()[0], tiers.Engines()[1]
		take := func() Outcome {
			if c.tiered {
				return Outcome{Allowed: tiers.Choke("key")}
			}
			return TakeAll(b.Claim("key", 1), a.Claim("key", 1))
		}
		stand := func(left, admitted, refused int64) {
			t.Helper()
			s, other := a.Stats(), b.Stats()
			assert.EqualValues(t, []int64{left, 0}, []int64{a.Peek("key", 0).Remaining, b.Peek("key", 0).Remaining}, "%+v", c)
			assert.EqualValues(t, []uint64{uint64(admitted), 0, uint64(admitted) + 1, uint64(refused)},
				[]uint64{s.Admitted, s.Refused, other.Admitted, other.Refused}, "%+v", c)
		}
		require.True(t, take().Allowed)
		settled(t, a)
		settled(t, b)
		second.take = func(*asked) {
			second.take = nil
			require.True(t, b.Choke("key"))
		}
		out := take()
		require.Nil(t, second.take)
		require.Equal(t, c.room == 3, out.Allowed)
		if c.room == 3 {
			stand(3, 2, 0)
			if out.Cancel(); !c.tiered {
				assert.EqualValues(t, 1, b.Peek("key", 0).Remaining, "a refused call must give back its own unit, and not the other's")
			}
			continue
		}
		stand(4, 1, 1)
		// Nothing is held.
		out.Cancel()
		require.False(t, take().Allowed)
		stand(4, 1, 2)
		if c.tiered {
			assert.Zero(t, testing.AllocsPerRun(100, func() { tiers.Choke("key") }))
			assert.Zero(t, testing.AllocsPerRun(100, func() { tiers.Take("key", 1) }))
		}
	}
}

// Each key gets back its unused units, once, to where they came from.
func TestOutcomeOfKnownKeys(t *testing.T) {
	clock := newHandClock()
	users := open[string](t, Config{Policy: funnel(10, 1, time.Second), Clock: clock.Now})
	hosts := open[int](t, Config{Policy: policy.Must(policy.FixedWindow(10, time.Minute)), Clock: clock.Now})
	left := func() [3]int64 {
		return [3]int64{users.Peek("u", 0).Remaining, hosts.Peek(1, 0).Remaining, hosts.Peek(2, 0).Remaining}
	}
	take := func() Outcome { return TakeAll(hosts.Claim(2, 2), users.Claim("u", 3), hosts.Claim(1, 4)) }
	take()
	settled(t, users)
	settled(t, hosts)
	for _, c := range []struct {
		name string
		end  func(o *Outcome)
		want [3]int64
	}{
		{"all kept", func(o *Outcome) { o.Keep() }, [3]int64{7, 6, 8}},
		{"more than all kept", func(o *Outcome) { o.Keep(100, 100, 100, 100) }, [3]int64{7, 6, 8}},
		{"some kept", func(o *Outcome) { o.Keep(1, 2, 3) }, [3]int64{8, 7, 9}},
		{"the last kept", func(o *Outcome) { o.Keep(0, 0) }, [3]int64{10, 6, 10}},
		{"cancelled", (*Outcome).Cancel, [3]int64{10, 10, 10}},
	} {
		users.Reset("u")
		hosts.Reset(1)
		hosts.Reset(2)
		// The word of a used key decides alone.
		users.Take("u", 1)
		hosts.Take(1, 1)
		hosts.Take(2, 1)
		out := take()
		require.True(t, out.Allowed)
		require.Nil(t, out.held, "the claims must be taken by offers")
		// Only the outcome's own units come back.
		users.Refund("u", 1)
		hosts.Refund(1, 1)
		hosts.Refund(2, 1)
		c.end(&out)
		// Only the first Keep counts.
		out.Keep(0, 0, 0)
		out.Cancel()
		assert.Equal(t, c.want, left(), c.name)
	}
}

// Two claims on a known key are met together. Keys of an engine are taken from in a fixed order.
func TestKnownKeysOfOneEngine(t *testing.T) {
	e := open[string](t, Config{Policy: funnel(4, 1, time.Hour), Clock: newHandClock().Now})
	require.True(t, TakeAll(e.Claim("a", 1), e.Claim("b", 1)).Allowed)
	settled(t, e)
	assert.False(t, TakeAll(e.Claim("a", 2), e.Claim("a", 2)).Allowed)
	assert.False(t, TakeAll(e.Claim("a", 2), e.Claim("b", 1), e.Claim("a", 2)).Allowed)
	assert.EqualValues(t, 3, e.Peek("a", 0).Remaining)
	out := TakeAll(e.Claim("a", 1), e.Claim("a", 2), e.Claim("b", 3))
	require.True(t, out.Allowed)
	assert.Zero(t, out.Decisions[0].Remaining)
	out.Cancel()
	assert.EqualValues(t, []int64{3, 3}, []int64{e.Peek("a", 0).Remaining, e.Peek("b", 0).Remaining})
	one, two := &claimer{id: 1}, &claimer{id: 2}
	low, middle, high := Claim{engine: one, hashedKey: hashedKey{hash: 7}}, Claim{engine: two, hashedKey: hashedKey{hash: 3}}, Claim{engine: two, hashedKey: hashedKey{hash: 5}}
	for _, claims := range [][]Claim{
		{low, middle, high}, {low, high, middle}, {middle, low, high}, {middle, high, low}, {high, low, middle}, {high, middle, low},
	} {
		var c knownCall
		require.True(t, c.sort(claims))
		assert.Equal(t, []Claim{low, middle, high}, []Claim{claims[c.order[0]], claims[c.order[1]], claims[c.order[2]]})
	}
	for _, of := range [][]Claim{{low, low, high}, {low, high, low}, {high, low, low}} {
		assert.False(t, new(knownCall).sort(of))
	}
}

// The engines of a call decide at one instant, unless their clocks differ, and their epochs differ.
func TestMomentIsOneInstant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := Config{Policy: funnel(1, 1, time.Hour), PackageTime: true}
		first := newTimeSource(config, 1, 1)
		time.Sleep(time.Millisecond)
		second := newTimeSource(config, 1, 1)
		time.Sleep(time.Second)
		var now moment
		a, b := first.read(&now), second.read(&now)
		assert.EqualValues(t, 1+time.Second+time.Millisecond, a)
		assert.EqualValues(t, 1+time.Second, b)
		time.Sleep(time.Millisecond)
		assert.Equal(t, a, first.read(&now), "the clock must be read once")
		assert.EqualValues(t, a+policy.Instant(time.Millisecond), first.read(new(moment)))
	})

	var now moment
	byPackageTime := newTimeSource(Config{PackageTime: true}, 1, 1)
	a := byPackageTime.read(&now)
	clock := newHandClock()
	own := newTimeSource(Config{Clock: clock.Now}, 1, 1)
	then := own.read(&now)
	clock.Advance(time.Second)
	assert.EqualValues(t, time.Second, own.read(&now)-then, "a Config.Clock must be read for each engine")

	counted := newTimeSource(byCounter(t, Config{}), 1, 1)
	assert.NotEqual(t, a, counted.read(&now), "a moment must be read anew for another clock")
	c := counted.read(&now)
	assert.Equal(t, c, counted.read(&now))
	assert.GreaterOrEqual(t, counted.now(), c)
}

// If the overtaking call leaves a key without a word, the call still takes from it, and gives back.
func TestOvertakenByAReset(t *testing.T) {
	second := &hooked{Policy: funnel(3, 1, 24*time.Hour)}
	a := open[string](t, Config{Policy: funnel(5, 1, 24*time.Hour)})
	b := open[string](t, Config{Policy: second})
	tiers := Tiered[string]{engines: []*Engine[string]{a, b}}
	require.True(t, tiers.Choke("key"))
	settled(t, a)
	settled(t, b)
	left := func() []int64 { return []int64{a.Peek("key", 0).Remaining, b.Peek("key", 0).Remaining} }
	second.take = func(*asked) {
		second.take = nil
		require.True(t, b.Reset("key"))
	}
	out := TakeAll(b.Claim("key", 2), a.Claim("key", 1))
	require.True(t, out.Allowed)
	assert.Equal(t, []int64{1, 3}, []int64{out.Decisions[0].Remaining, out.Decisions[1].Remaining})
	assert.Equal(t, []int64{3, 1}, left())
	out.Keep(1)
	assert.Equal(t, []int64{3, 2}, left())
	second.take = func(*asked) {
		second.take = nil
		require.True(t, b.Reset("key"))
	}
	require.True(t, tiers.Take("key", 2).Allowed)
	assert.Equal(t, []int64{1, 1}, left())
	assert.EqualValues(t, 3, a.Stats().Admitted)
	assert.EqualValues(t, 3, b.Stats().Admitted)
}
