package table

import (
	"testing"

	"github.com/ral-limiter/ral/internal/testkit/testenv"
	"github.com/stretchr/testify/require"
)

func TestEmptyCommandDoesNothing(t *testing.T) {
	r := newRig[string](t, Options{})
	r.Apply(Command[string]{})
	r.Abandon(Command[string]{})
	require.Zero(t, r.View().Len())
}

// Promise: A command executed twice does no harm.
func TestFilingTwiceDoesNothing(t *testing.T) {
	r := newRig[string](t, Options{})
	e := r.open("a")
	require.True(t, r.take(e, 1))
	command := FileCommand[string](r.hash("a"), 1)
	r.Apply(command)
	r.Apply(command)
	require.Equal(t, 1, r.index.Len())
	require.NoError(t, r.Check())

	// And again when the key has left, and when it has come back.
	require.Equal(t, 1, r.sweep(2*hour))
	r.Apply(command)
	require.Zero(t, r.View().Len())
	require.True(t, r.take(r.open("a"), 2*hour))
	r.Apply(command)
	require.Equal(t, 1, r.index.Len(), "the entry in the slot was not filed")
}

// A flood does not wake the writer for each key, and a small table is not emptied at once.
func TestRoomCommandEvictsFewKeys(t *testing.T) {
	for _, c := range []struct{ keys, room int }{{1, 1}, {100, 1}, {4096, 4}, {70_000, 64}} {
		if testenv.Race && c.keys > 5000 {
			continue
		}
		r := newRig[int](t, Options{MaxKeys: c.keys})
		for key := range c.keys {
			r.add(key, 1)
		}
		r.Apply(RoomCommand(0, 1))
		require.Equal(t, c.keys, r.View().Len(), "keys were evicted for a key that has come meanwhile")
		r.Apply(RoomCommand(c.keys, 1))
		require.Equal(t, c.keys-c.room, r.View().Len())
		r.Apply(RoomCommand(c.keys+1, 1))
		require.Equal(t, c.keys-c.room, r.View().Len(), "keys were evicted though there is room")
	}
}

// A table that looks full while callers of one key race evicts no key.
func TestApplyRoomWaitsForUncertainPlaces(t *testing.T) {
	r := newRig[int](t, Options{MaxKeys: 2})
	r.add(1, 1)
	require.Equal(t, placeTaken, r.places.take(2))
	_, status := r.View().Open(r.hash(2), 2)
	require.Equal(t, Undecided, status)
	r.Apply(RoomCommand(2, 1))
	require.True(t, r.has(1))
	r.places.cancel()
	_, status = r.View().Open(r.hash(2), 2)
	require.Equal(t, Landed, status)
	_, status = r.View().Open(r.hash(3), 3)
	require.Equal(t, Full, status)
	r.Apply(RoomCommand(3, 1))
	require.False(t, r.has(1))
}

func TestSweepWaitsForNoReceiver(t *testing.T) {
	r := newRig[string](t, Options{})
	for _, key := range []string{"a", "b", "c"} {
		r.add(key, 1)
	}
	reply := make(chan SweepResult, 1)
	r.Apply(SweepCommand[string](2*hour, 2, reply))
	require.Equal(t, SweepResult{Evicted: 2, More: true}, <-reply)

	// The last result was never received.
	reply <- SweepResult{Evicted: 99}
	r.Apply(SweepCommand[string](2*hour, 2, reply))
	require.Equal(t, SweepResult{Evicted: 99}, <-reply, "the writer waits for no receiver")
	r.Apply(SweepCommand[string](2*hour, 2, nil))
	require.Zero(t, r.View().Len())
}
