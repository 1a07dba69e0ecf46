package slots

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	second  = Time(time.Second)
	term    = 10 * time.Second
	longest = time.Minute
)

// reached returns a book whose server has beaten at 0 over link 1. Its units last until 9 s.
func reached() *Book {
	b := New(term)
	there(b, 0, 0, 1)
	return b
}

// there has the book beat at one time and get the answer at another: all units count, except those missing.
func there(b *Book, sent, now Time, link uint64, missing ...*Slot) {
	answer(b, b.Beat(sent), now, link, "run", missing...)
}

func answer(b *Book, beat Beat, now Time, link uint64, run string, missing ...*Slot) {
	all := make([]bool, len(beat.Confirms))
	for i, c := range beat.Confirms {
		all[i] = !slices.Contains(missing, c.Slot)
	}
	b.Beaten(beat, now, link, run, all)
}

// enter has units enter by a request that is sent at one time and answered at another.
func enter(b *Book, key, id string, n int64, sent, now Time, longest time.Duration) *Slot {
	return b.Enter(key, id, n, b.Ask(sent), now, longest)
}

func TestEntryNeedsARecentBeat(t *testing.T) {
	for _, c := range []struct {
		name string
		book func() *Book
		now  Time
		link uint64
		may  bool
	}{
		{"before the first beat", func() *Book { return New(term) }, 0, 0, false},
		{"after a beat", reached, 0, 1, true},
		{"shortly before the margin", reached, 9*second - 1, 1, true},
		{"in the margin", reached, 9 * second, 1, false},
		{"behind another link", reached, second, 2, false},
		{"with units that Redis has not counted", func() *Book {
			b := reached()
			b.EnterLocally("a", "1", 1, 5, 0, longest)
			return b
		}, 0, 1, false},
		{"once Redis has counted them", func() *Book {
			b := reached()
			b.EnterLocally("a", "1", 1, 5, 0, longest)
			there(b, second, second, 1)
			return b
		}, second, 1, true},
		{"once they came back", func() *Book {
			b := reached()
			b.Leave(b.EnterLocally("a", "1", 1, 5, 0, longest))
			return b
		}, 0, 1, true},
		{"after a beat that was answered in the margin", func() *Book {
			b := New(term)
			there(b, 0, 9*second, 1)
			return b
		}, 9 * second, 1, false},
		{"after an older beat that was answered later", func() *Book {
			b := reached()
			there(b, 5*second, 5*second, 1)
			there(b, 2*second, 6*second, 1)
			return b
		}, 13 * second, 1, true},
	} {
		t.Run(c.name, func(t *testing.T) { require.Equal(t, c.may, c.book().MayEnter(c.now, c.link)) })
	}
}

// A server that stood still while Redis answered, or before it reads the answer, has no units by it.
func TestLateAnswerGivesNoUnits(t *testing.T) {
	b := reached()
	require.Nil(t, enter(b, "a", "1", 1, 0, 9*second, longest))
	require.Nil(t, enter(b, "a", "1", 1, 0, second, time.Second), "they have ended")
	require.NotNil(t, enter(b, "a", "1", 1, 0, 9*second-1, longest))
}

func TestFenceReturnsEachLostSlotOnce(t *testing.T) {
	b := reached()
	first, second2 := enter(b, "a", "1", 2, 0, 0, longest), enter(b, "a", "2", 1, second, second, longest)
	local := b.EnterLocally("b", "3", 1, 1, second, longest)
	require.Empty(t, b.Fence(9*second-1))
	require.Equal(t, []*Slot{first}, b.Fence(9*second))
	require.Empty(t, b.Fence(10*second-1))
	require.Equal(t, []*Slot{second2}, b.Fence(15*second), "each lost slot is returned once")
	require.Empty(t, b.Fence(16*second), "what Redis has not counted is not lost")
	require.EqualValues(t, 3, b.Held("a"), "lost units are held until their call ends")

	there(b, 16*second, 16*second, 2)
	require.EqualValues(t, 3, b.Held("a"))
	require.Empty(t, b.Fence(17*second))
	require.Equal(t, []string{"3"}, confirmed(b, 17*second), "what is lost stays lost")
	held, counted := b.Leave(first)
	require.True(t, held && counted)
	held, _ = b.Leave(first)
	require.False(t, held, "a slot is held after it left")
	require.Equal(t, []*Slot{local}, b.Fence(25*second), "Redis has counted it since")
	require.Empty(t, b.Fence(61*second))
	require.Zero(t, b.Len(), "all have ended by themselves")
}

func confirmed(b *Book, now Time) (ids []string) {
	for _, c := range b.Beat(now).Confirms {
		ids = append(ids, c.ID)
	}
	slices.Sort(ids)
	return ids
}

// A beat confirms only what was sent with it, from the time of its sending.
func TestBeatConfirmsOnlyItsSlots(t *testing.T) {
	b := reached()
	first := enter(b, "a", "1", 1, 0, 0, longest)
	beat := b.Beat(5 * second)
	require.Equal(t, Beat{5 * second, []Confirm{{first, 55 * time.Second, "run"}}}, beat)
	// The slot was sent before the beat.
	later := enter(b, "a", "2", 1, 4*second, 6*second, longest)
	answer(b, beat, 7*second, 1, "run")
	require.Equal(t, []*Slot{later}, b.Fence(13*second), "the beat did not confirm it")
	require.Equal(t, 14*second, b.Until(first))

	share := b.EnterLocally("b", "3", 2, 2, 13*second, longest)
	require.Nil(t, b.EnterLocally("b", "4", 1, 2, 13*second, longest))
	require.Equal(t, Confirm{share, 59 * time.Second, ""}, confirmOf(b, share, 14*second), "no Redis has counted it")
	there(b, 14*second, 14*second, 1)
	require.Equal(t, "run", confirmOf(b, share, 15*second).Run)
	there(b, 15*second, 15*second, 1, share)
	require.Zero(t, b.Held("b"), "another server gave it back")
	_, ok := b.Extend(share, 15*second, longest)
	require.False(t, ok)
}

func confirmOf(b *Book, s *Slot, now Time) Confirm {
	for _, c := range b.Beat(now).Confirms {
		if c.Slot == s {
			return c
		}
	}
	return Confirm{}
}

// A beat is under way while slots enter, and another Redis answers the beat. The slots still name the Redis
// that was known when they asked, until a beat confirms them.
func TestSlotRemembersItsRedis(t *testing.T) {
	b := reached()
	asked := b.Ask(second)
	beat := b.Beat(second)
	slot := b.Enter("a", "1", 1, asked, second, longest)
	answer(b, beat, 2*second, 1, "another")
	later := b.Enter("a", "2", 1, asked, 2*second, longest)
	require.Equal(t, "run", confirmOf(b, slot, 2*second).Run)
	require.Equal(t, "run", confirmOf(b, later, 2*second).Run)
	require.Equal(t, "another", b.Ask(2*second).Run)
	older := b.Beat(3 * second)
	answer(b, b.Beat(4*second), 4*second, 1, "another")
	require.Equal(t, "another", confirmOf(b, slot, 4*second).Run)
	answer(b, older, 5*second, 1, "run")
	require.Equal(t, "another", confirmOf(b, slot, 5*second).Run, "an older answer tells nothing new")
	require.Equal(t, "another", b.Ask(5*second).Run)
}

func TestExtendFailsForALostSlot(t *testing.T) {
	b := reached()
	s := enter(b, "a", "1", 1, 0, 0, 20*time.Second)
	there(b, 8*second, 8*second, 1)
	beat, ok := b.Extend(s, 15*second, 20*time.Second)
	require.True(t, ok)
	require.Equal(t, Beat{15 * second, []Confirm{{s, 20 * time.Second, "run"}}}, beat)
	b.Confirmed(beat, 15*second, "run", []bool{true})
	b.Fence(23 * second)
	require.Equal(t, []string{"1"}, confirmed(b, 23*second))
	// The slot is lost.
	b.Fence(24 * second)
	_, ok = b.Extend(s, 24*second, time.Hour)
	require.False(t, ok)
	require.EqualValues(t, 1, b.Held("a"))
	b.Fence(35 * second)
	require.Zero(t, b.Held("a"), "a lost slot is held after its longest time")

	local := b.EnterLocally("b", "2", 1, 1, 40*second, 20*time.Second)
	_, ok = b.Extend(local, 50*second, 20*time.Second)
	require.True(t, ok)
	require.Empty(t, b.Fence(60*second))
	require.EqualValues(t, 1, b.Held("b"), "a share needs no answer of Redis")
	b.Fence(70 * second)
	require.Zero(t, b.Held("b"))
}

// Redis lets units end at their earlier end if Redis does not learn of the extension.
func TestUnansweredExtensionLosesUnits(t *testing.T) {
	b := reached()
	s := enter(b, "a", "1", 1, 0, 0, 20*time.Second)
	there(b, 17*second, 17*second, 1)
	_, ok := b.Extend(s, 19*second, 20*time.Second)
	require.True(t, ok)
	require.Empty(t, b.Fence(20*second-1))
	require.Equal(t, []*Slot{s}, b.Fence(20*second), "though a beat at 17 s would hold until 26 s")
}

func TestGiveUpReturnsSlotsNotLost(t *testing.T) {
	b := reached()
	lost := enter(b, "a", "1", 1, 0, 0, longest)
	there(b, second, second, 1)
	b.Fence(10 * second)
	kept := b.EnterLocally("b", "2", 1, 1, 10*second, longest)
	b.LeaveKey("c")
	require.Same(t, lost, b.Find("1"))
	require.Equal(t, []*Slot{kept}, b.GiveUp())
	require.Zero(t, b.Len())
	enter(b, "c", "3", 1, 10*second, 10*second, longest)
	b.LeaveKey("c")
	require.Nil(t, b.Find("3"))
}
