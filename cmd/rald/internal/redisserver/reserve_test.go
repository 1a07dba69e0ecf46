package redisserver

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/cmd/rald/internal/configured"
	"github.com/ral-limiter/ral/cmd/rald/internal/families"
	"github.com/ral-limiter/ral/cmd/rald/internal/redistest"
	"github.com/ral-limiter/ral/cmd/rald/internal/reservation"
	"github.com/ral-limiter/ral/fleet"
	"github.com/ral-limiter/ral/internal/testkit/admissiontest"
	"github.com/ral-limiter/ral/internal/testkit/testenv"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

func stands(state string, units, ttl int64) map[string]any {
	return map[string]any{"state": state, "units": units, "ttl": ttl}
}

// left returns the remaining units of ann under slow.
func (c *client) left() int64 {
	c.t.Helper()
	return c.do("RAL.PEEK ann slow").(map[string]any)["remaining"].(int64)
}

// holds makes a reservation, and returns its ID, empty after a refusal.
func (c *client) holds(arguments string) string {
	c.t.Helper()
	reply, ok := c.do("RAL.RESERVE " + arguments).(map[string]any)
	require.True(c.t, ok, arguments)
	id, _ := reply["id"].(string)
	require.Equal(c.t, reply["allowed"], id != "", reply)
	return id
}

// Promise: `RAL.RESERVE` holds units until a commit, a release or the deadline, at which the required word decides.
func TestReservedUnitsEndAsTheyShould(t *testing.T) {
	for _, c := range []struct {
		// A * in commands stands for a reservation of 4 of 9 units, for 10 s.
		commands string
		want     []map[string]any
		left     int64
	}{
		{"COMMIT * 3", []map[string]any{stands("committed", 3, 0)}, 6},
		{"COMMIT * 4", []map[string]any{stands("committed", 4, 0)}, 5},
		{"COMMIT * 7", []map[string]any{stands("committed", 7, 0)}, 2},
		{"COMMIT * 3, COMMIT * 5, RELEASE *, EXTEND * 1000, wait, COMMIT * 1", slices.Repeat([]map[string]any{stands("committed", 3, 0)}, 5), 6},
		{"RELEASE *, RELEASE *, COMMIT * 5", slices.Repeat([]map[string]any{stands("released", 0, 0)}, 3), 9},
		{"EXTEND * 20000, wait, COMMIT * 3", []map[string]any{stands("held", 4, 20_000), stands("committed", 3, 0)}, 6},
		{"EXTEND * 90000, wait, EXTEND * 90000", []map[string]any{stands("held", 4, 60_000), stands("held", 4, 50_000)}, 5},
		{"EXTEND * 1", []map[string]any{stands("held", 4, 10_000)}, 5},
		{"wait", nil, -1},
		{"wait, RELEASE *, EXTEND * 1000", []map[string]any{stands("expired", -1, 0), stands("expired", -1, 0)}, -1},
		{"wait, COMMIT * 3, COMMIT * 6, RELEASE *", slices.Repeat([]map[string]any{stands("late", 3, 0)}, 3), 6},
		{"wait, COMMIT * 6", []map[string]any{stands("late", 6, 0)}, 3},
	} {
		for action, expired := range map[string][2]int64{"spend": {4, 5}, "release": {0, 9}} {
			inBubble(t, Config{}, func(t *testing.T, client *client) {
				id := client.three().holds("slow ann 4 10000 " + action)
				require.EqualValues(t, 5, client.left())
				want := c.want
				for command := range strings.SplitSeq(c.commands, ", ") {
					about := c.commands + " of " + action + ", " + command
					if command == "wait" {
						time.Sleep(10 * time.Second)
						synctest.Wait()
						continue
					}
					one := map[string]any{"state": want[0]["state"], "units": want[0]["units"], "ttl": want[0]["ttl"]}
					if one["units"] == int64(-1) {
						one["units"] = expired[0]
					}
					command = strings.Replace(command, " *", " slow ann "+id, 1)
					require.Equal(t, one, client.do("RAL."+command), about)
					want = want[1:]
				}
				require.Empty(t, want, c.commands)
				left := c.left
				if left < 0 {
					left = expired[1]
				}
				require.Equal(t, left, client.left(), "%s of %s", c.commands, action)
			})
		}
	}
}

// Promise: A repeated `RAL.RESERVE`, `RAL.COMMIT` or `RAL.RELEASE` of an ID answers as the first did and counts once.
func TestRepeatedReservationsCountOnce(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, c *client) {
		c.three()
		first := c.do("RAL.RESERVE slow ann 4 10000 spend mine")
		assert.Equal(t, "mine", first.(map[string]any)["id"])
		assert.EqualValues(t, 10_000, first.(map[string]any)["ttl"])
		assert.EqualValues(t, 5, first.(map[string]any)["remaining"])
		time.Sleep(time.Second)
		assert.Equal(t, first, c.do("RAL.RESERVE slow ann 4 10000 spend mine"))
		assert.EqualValues(t, 5, c.left())
		assert.Equal(t, stands("committed", 6, 0), c.do("RAL.COMMIT slow ann mine 6"))
		for range 6 {
			time.Sleep(9 * time.Second)
			assert.Equal(t, stands("committed", 6, 0), c.do("RAL.COMMIT slow ann mine 6"))
			assert.Equal(t, first, c.do("RAL.RESERVE slow ann 4 10000 spend mine"))
		}
		assert.EqualValues(t, 3, c.left())

		// A refusal is not kept, and neither is an ID after the longest time.
		time.Sleep(6 * time.Second)
		assert.Empty(t, c.holds("slow ann 4 10000 spend mine"))
		assert.NotEmpty(t, c.holds("slow ann 3 10000 spend mine"))
		assert.Zero(t, c.left())

		// Another key or limit has reservations of its own.
		assert.NotEmpty(t, c.holds("slow bob 4 10000 spend mine"))
		assert.NotEmpty(t, c.holds("window_9/h ann 4 10000 spend mine"))
		assert.Equal(t, stands("unknown", 0, 0), c.do("RAL.RELEASE window_8/h ann mine"))
		// An empty ID is none, so that a client without one does not get another's reservation.
		assert.NotEqual(t, c.send("RAL.RESERVE", "api", "ann", "1", "1000", "spend", ""), c.send("RAL.RESERVE", "api", "ann", "1", "1000", "spend", ""))
		long := strings.Repeat("x", 1000)
		assert.Equal(t, "held", c.do("RAL.EXTEND api cid " + c.holds("api cid 1 1000 spend "+long) + " 1000").(map[string]any)["state"])
		assert.Equal(t, stands("released", 0, 0), c.do("RAL.RELEASE api cid "+long))
	})
}

// Promise: `RAL.COMMIT` of an unknown ID is a plain charge that says so, counts once, and can be refused by the operator.
func TestCommitOfAnUnknownReservation(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, c *client) {
		c.three()
		for range 2 {
			assert.Equal(t, stands("unknown", 3, 0), c.do("RAL.COMMIT slow ann lost 3"))
			assert.EqualValues(t, 6, c.left())
		}
		assert.Equal(t, stands("unknown", 3, 0), c.do("RAL.RELEASE slow ann lost"), "the charge stays")
		assert.NotEmpty(t, c.holds("slow ann 4 1000 spend lost"), "the units are counted already")
		assert.EqualValues(t, 6, c.left())
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, reservation.Unknown, reservation.State(0))
		assert.Equal(t, ReservationStats{Came: [reservation.States]uint64{1}}, c.server.Stats().Reservations)

		assert.Equal(t, stands("unknown", 0, 0), c.do("RAL.RELEASE slow ann lost"))
		assert.Equal(t, stands("unknown", 0, 0), c.do("RAL.EXTEND slow ann lost 1000"))
		// No actual cost is too large to be charged.
		assert.Equal(t, stands("unknown", 9, 0), c.do("RAL.COMMIT slow ann huge 9223372036854775807"))
		assert.Zero(t, c.left())
	})
	inBubble(t, Config{Reserve: ReserveConfig{RefuseUnknown: true}}, func(t *testing.T, c *client) {
		assert.Equal(t, stands("unknown", 0, 0), c.three().do("RAL.COMMIT slow ann lost 3"))
		assert.EqualValues(t, 9, c.left())
	})
}

// Promise: `RAL.RESERVE` holds units in flight until a commit, a release or the deadline gives them back, and never charges them.
func TestUnitsInFlightAreReserved(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, c *client) {
		const limit = "in_flight_4,_20s_at_most"
		left := func() int64 { return c.do("RAL.PEEK ann " + limit).(map[string]any)["remaining"].(int64) }
		assert.Equal(t, stands("unknown", 0, 0), c.three().do("RAL.COMMIT "+limit+" ann id 3"))
		assert.EqualValues(t, 4, left())
		assert.Equal(t, replyError(`ERR the action at the deadline is "spend": release is accepted under "`+limit+
			`", as units in flight are in use until they are released, and are never spent`), c.do("RAL.RESERVE "+limit+" ann 1 1000 spend"))
		refused := c.do("RAL.RESERVE " + limit + " ann 3 1000 release").(map[string]any)
		assert.Equal(t, []any{false, int64(-1), nil}, []any{refused["allowed"], refused["retry_after"], refused["id"]}, "more than half")
		for command, want := range map[string]map[string]any{
			"COMMIT": stands("committed", 0, 0), "RELEASE": stands("released", 0, 0), "wait": stands("expired", 0, 0), "wait, COMMIT": stands("late", 0, 0),
		} {
			id := c.holds(limit + " ann 2 10000 release")
			other := c.holds(limit + " ann 2 50000 release")
			assert.Zero(t, left(), command)
			assert.Empty(t, c.holds(limit+" ann 1 1000 release"), command)
			if strings.HasPrefix(command, "wait") {
				time.Sleep(10 * time.Second)
				synctest.Wait()
			}
			end := "RAL.RELEASE " + limit + " ann " + id
			if strings.HasSuffix(command, "COMMIT") {
				end = "RAL.COMMIT " + limit + " ann " + id + " 3"
			}
			for range 2 {
				assert.Equal(t, want, c.do(end), command)
				assert.EqualValues(t, 2, left(), command)
			}
			extended := c.do("RAL.EXTEND " + limit + " ann " + other + " 50000").(map[string]any)
			assert.LessOrEqual(t, extended["ttl"], int64(20_000), "%s: the limit's longest time", command)
			time.Sleep(time.Duration(extended["ttl"].(int64)-1) * time.Millisecond)
			synctest.Wait()
			assert.EqualValues(t, 2, left(), command)
			time.Sleep(time.Millisecond)
			synctest.Wait()
			assert.EqualValues(t, 4, left(), command)
		}
		reply := c.do("RAL.RESERVE in_flight_4,_1h_at_most ann 2 9000000 release").(map[string]any)
		assert.EqualValues(t, 60_000, reply["ttl"], "the operator's longest time")
	})
}

// extend moves a deadline to a second from now.
func extend(book *book, entry *record, now time.Duration) int64 {
	return book.Extend(entry, now, time.Second)
}

// A server that is cut off from Redis gives up the units in flight. So the reservation has ended.
func TestLostUnitsEndTheirReservation(t *testing.T) {
	r, u, _ := newDesk(t, limitsFile)
	losing, lost := admissiontest.NewLosing(t), make(chan struct{})
	losing.Lose(lost)
	u.Limit = losing.Limit()
	u.Family = gated{Family: u.Family, Limiter: losing, gate: make(chan struct{}, 1), held: &atomic.Int64{}}
	u.Family.(gated).gate <- struct{}{}
	id, ctx := idOf(u, []byte("r")), context.Background()
	_, d, err := r.reserve(ctx, u, id, 1, time.Minute, reservation.Release)
	require.True(t, err == nil && d.Allowed)
	s, err := r.changeKnown(ctx, id, extend)
	assert.Equal(t, reservation.Held, s.state, err)
	close(lost)
	s, err = r.changeKnown(ctx, id, extend)
	assert.Equal(t, standing{state: reservation.Expired}, s, err)
	assert.EqualValues(t, 1, losing.Peek(u.Key, 0).Remaining)
}

// Promise: Operators bound the time of a reservation and its share of a limit.
func TestReservationsAreClamped(t *testing.T) {
	for share, most := range map[float64]int{0: 4, 0.2: 1, 0.01: 1, 1: 9} {
		inBubble(t, Config{Reserve: ReserveConfig{Share: share, Longest: 30 * time.Second}}, func(t *testing.T, c *client) {
			refused := c.three().do(fmt.Sprintf("RAL.RESERVE slow ann %d 1000 release", most+1)).(map[string]any)
			assert.Equal(t, []any{false, int64(-1), nil, int64(0)}, []any{refused["allowed"], refused["retry_after"], refused["id"], refused["ttl"]})
			assert.EqualValues(t, 9, c.left())
			reply := c.do(fmt.Sprintf("RAL.RESERVE slow ann %d 9223372036854775807 release", most)).(map[string]any)
			assert.EqualValues(t, 30_000, reply["ttl"])
			assert.EqualValues(t, 9-most, c.left())
			time.Sleep(30 * time.Second)
			synctest.Wait()
			assert.EqualValues(t, 9, c.left())
		})
	}
}

func TestReservationCommandsAreChecked(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, c *client) {
		for command, want := range map[string]string{
			"RAL.RESERVE slow ann 1 1000":           "ERR wrong number of arguments for 'ral.reserve' command",
			"RAL.RESERVE slow ann 1 1000 keep":      `ERR the action at the deadline is "keep": spend or release is accepted`,
			"RAL.RESERVE slow ann 0 1000 spend":     `ERR n is "0": 1 or more is accepted`,
			"RAL.RESERVE slow ann x 1000 spend":     `ERR n is "x": an integer of 64 bits is accepted`,
			"RAL.RESERVE slow ann 1 0 spend":        `ERR ttl is "0": 1 or more milliseconds are accepted`,
			"RAL.RESERVE other ann 1 1000 spend":    `ERR limit is "other": the name of a configured limit is accepted`,
			"RAL.COMMIT slow ann id -1":             `ERR actual is "-1": 0 or more is accepted`,
			"RAL.COMMIT slow ann id":                "ERR wrong number of arguments for 'ral.commit' command",
			"RAL.EXTEND slow ann id x":              `ERR ttl is "x": 1 or more milliseconds are accepted`,
			"RAL.RELEASE other ann id":              `ERR limit is "other": the name of a configured limit is accepted`,
			"RAL.RESERVE slow ann 1 1000 spend a b": "ERR wrong number of arguments for 'ral.reserve' command",
		} {
			got, ok := c.do(command).(replyError)
			assert.True(t, ok && strings.HasPrefix(string(got), want), "%s: %s", command, got)
		}
		// A map is its keys and values in turn.
		assert.Equal(t, []any{
			"id", "mine", "ttl", int64(1000), "allowed", int64(1), "limit", int64(5), "remaining", int64(4),
			"wait", int64(0), "retry_after", int64(0), "reset_after", int64(1000),
		}, c.do("RAL.RESERVE api bob 1 1000 spend mine"))
		assert.Equal(t, []any{"state", "held", "units", int64(1), "ttl", int64(2000)}, c.do("RAL.EXTEND api bob mine 2000"))

		// In a transaction they are executed in order.
		for _, command := range []string{"RAL.RESERVE api cid 2 1000 release mine", "RAL.RELEASE api cid mine", "RAL.PEEK cid api"} {
			if command == "RAL.RESERVE api cid 2 1000 release mine" {
				require.Equal(t, "OK", c.do("MULTI"))
			}
			require.Equal(t, "QUEUED", c.do(command))
		}
		all := c.do("EXEC").([]any)
		require.Len(t, all, 3)
		assert.Equal(t, []any{"state", "released", "units", int64(0), "ttl", int64(0)}, all[1])
		assert.EqualValues(t, 5, all[2].([]any)[5])

		assert.Equal(t, []any{[]any{"ral.commit", int64(5), []any{"write", "fast"}, int64(2), int64(2), int64(1)}}, c.do("COMMAND INFO ral.commit"))
		for _, one := range c.server.Stats().Commands {
			if one.Name == "ral.extend" {
				assert.Equal(t, CommandStats{"ral.extend", 1, 1}, one)
			}
		}
	})
}

// Promise: Reservations of one key fill at most a sixteenth of the room. A call without room is refused, and never an error.
func TestReservationsAreBounded(t *testing.T) {
	inBubble(t, Config{Reserve: ReserveConfig{MaxIDs: 16 * 4}}, func(t *testing.T, c *client) {
		c.three()
		const limit = "window_1000/300d"
		for range 3 {
			require.NotEmpty(t, c.holds(limit+" ann 1 10000 spend"))
		}
		time.Sleep(time.Second)
		require.NotEmpty(t, c.holds(limit+" ann 1 10000 spend a"))
		full := c.do("RAL.RESERVE " + limit + " ann 1 10000 spend b").(map[string]any)
		assert.Equal(t, []any{false, nil, int64(9000), int64(996)}, []any{full["allowed"], full["id"], full["retry_after"], full["remaining"]})
		assert.Equal(t, stands("unknown", 5, 0), c.do("RAL.COMMIT "+limit+" ann b 5"), "charged, and not known afterwards")
		assert.Equal(t, stands("unknown", 5, 0), c.do("RAL.COMMIT "+limit+" ann b 5"))
		assert.EqualValues(t, 986, c.do("RAL.PEEK ann " + limit).(map[string]any)["remaining"])
		others := 0
		for i := range 16 {
			if c.holds(fmt.Sprintf("%s %d 1 10000 spend", limit, i)) != "" {
				others++
			}
		}
		assert.Positive(t, others, "keys in other parts")
		assert.Equal(t, stands("committed", 1, 0), c.do("RAL.COMMIT "+limit+" ann a 1"))
		require.NotEmpty(t, c.holds(limit+" ann 1 10000 spend b"), "in the place of one that has ended")
		assert.Equal(t, stands("unknown", 1, 0), c.do("RAL.COMMIT "+limit+" ann a 1"))
		stats := c.server.Stats().Reservations
		assert.EqualValues(t, 4+others, stats.Held)
		assert.EqualValues(t, 1, stats.Forgotten)
		assert.EqualValues(t, 1+16-others, stats.Full)
	})
}

// A change of the limit's figures counts the held units under the new limit. Their number is not known in it any
// more, so only a higher cost is corrected.
//
// Promise: A reservation outlives a change of its limit, and never gives back units that it does not hold.
func TestReservationsOutliveAChangeOfTheirLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keep, err := families.New(families.Config{})
		require.NoError(t, err)
		limits := limitsOf(t, keep, limitsFile)
		c := connect(t, Config{Families: keep, Limits: limits}).three()
		for _, id := range []string{"a", "b"} {
			c.holds("slow ann 3 10000 release " + id)
		}
		set(t, limits, strings.Replace(limitsFile, "1/300d", "1/150d", 1))
		assert.EqualValues(t, 3, c.left())
		assert.Equal(t, stands("committed", 5, 0), c.do("RAL.COMMIT slow ann a 5"))
		assert.EqualValues(t, 1, c.left())
		time.Sleep(10 * time.Second)
		synctest.Wait()
		assert.EqualValues(t, 1, c.left())
		set(t, limits, "limits: {}")
		assert.IsType(t, replyError(""), c.do("RAL.COMMIT slow ann b 1"))
	})
}

// Promise: Units in flight that are reserved count above a lower limit of a reload, until they are given back.
func TestReservationsInFlightOutliveAChangeOfTheirLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keep, err := families.New(families.Config{})
		require.NoError(t, err)
		limits := limitsOf(t, keep, "limits: {slow: 'in flight 6, 1m at most'}")
		c := connect(t, Config{Families: keep, Limits: limits}).three()
		for _, id := range []string{"a", "b"} {
			c.holds("slow ann 3 50000 release " + id)
		}
		set(t, limits, "limits: {slow: 'in flight 4, 1m at most'}")
		assert.Zero(t, c.left())
		assert.Equal(t, stands("committed", 0, 0), c.do("RAL.COMMIT slow ann a 5"))
		assert.EqualValues(t, 1, c.left())
		assert.Equal(t, stands("released", 0, 0), c.do("RAL.RELEASE slow ann b"))
		assert.EqualValues(t, 4, c.left())
	})
}

// inFlight stands for a reservation of units in flight, whose action is to release them.
const inFlight reservation.Action = 255

// Of commits, a release, a reset, another reservation and the deadline, all at once, exactly one ends the reservation: the replies
// and the units are those of some order of these calls, one after another.
//
// Promise: Of commit, release and deadline exactly one ends a reservation, also beside a reset.
func TestReservationsAreLinearizable(t *testing.T) {
	seed := testenv.Seed(t)
	random := rand.New(rand.NewPCG(seed, 0))
	calls := []string{"commit 3", "commit 6", "release", "deadline", "reset", "extend", "other"}
	for _, action := range []reservation.Action{reservation.Spend, reservation.Release, inFlight} {
		for round := range 400 {
			chosen := slices.Clone(calls)
			random.Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
			chosen = chosen[:2+random.IntN(3)]
			var got string
			// The subtest's engine ends with it.
			t.Run("", func(t *testing.T) { got = raceReservation(t, action, chosen) })
			allowed := map[string]bool{}
			permute(chosen, func(order []string) { allowed[modelReservation(action, chosen, order)] = true })
			require.True(t, allowed[got], "seed %d, round %d, %v: %v: %s is not of %v", seed, round, action, chosen, got, allowed)
		}
	}
}

// permute calls f with each order of the words.
func permute(words []string, f func([]string)) {
	var next func(n int)
	order := slices.Clone(words)
	next = func(n int) {
		if n == len(order) {
			f(order)
			return
		}
		for i := n; i < len(order); i++ {
			order[n], order[i] = order[i], order[n]
			next(n + 1)
			order[n], order[i] = order[i], order[n]
		}
	}
	next(0)
}

// raceReservation makes the calls at once on a reservation of 4 of 9 units. It returns the replies in order of
// the calls, and the units that are left.
func raceReservation(t *testing.T, action reservation.Action, calls []string) string {
	t.Helper()
	file, charged := limitsFile, []int64{3, 6}
	if action == inFlight {
		file, action, charged = "limits: {slow: 'in flight 9, 1m at most'}", reservation.Release, []int64{0, 0}
	}
	r, u, now := newDesk(t, file)
	id, ctx := idOf(u, []byte("r")), context.Background()
	_, d, err := r.reserve(ctx, u, id, 4, time.Second, action)
	require.True(t, err == nil && d.Allowed)

	replies := make([]string, len(calls))
	var ready, done sync.WaitGroup
	start := make(chan struct{})
	for i, call := range calls {
		ready.Add(1)
		done.Go(func() {
			ready.Done()
			<-start
			for range i % 2 {
				runtime.Gosched()
			}
			var s standing
			var err error
			switch call {
			case "commit 3":
				s, err = r.commit(ctx, u, id, charged[0])
			case "commit 6":
				s, err = r.commit(ctx, u, id, charged[1])
			case "release":
				s, err = r.changeKnown(ctx, id, (*book).Release)
			case "extend":
				s, err = r.changeKnown(ctx, id, extend)
			case "deadline":
				now.Store(int64(time.Second))
				r.expire()
				return
			case "other":
				_, d, err := r.reserve(ctx, u, idOf(u, []byte("other")), 3, time.Hour, action)
				replies[i] = fmt.Sprint(d.Allowed, err)
				return
			case "reset":
				_, err = u.Family.Reset(ctx, u.Key)
				replies[i] = fmt.Sprint(err)
				return
			}
			replies[i] = fmt.Sprint(s.state, s.units, err)
		})
	}
	ready.Wait()
	close(start)
	done.Wait()
	left, err := u.Family.TakeWith(ctx, u.Limit, u.Key, 0)
	require.NoError(t, err)
	return fmt.Sprint(replies, left.Remaining)
}

// modelReservation returns what raceReservation does if the calls are made in an order.
func modelReservation(action reservation.Action, calls, order []string) string {
	state, counted, used := reservation.Held, int64(4), int64(4)
	// forgotten means that a reset forgot the reservation's units.
	forgotten := false
	replies := make([]string, len(calls))
	count := func(units int64) {
		if units > counted || !forgotten {
			used += units - counted
		}
		counted = units
	}
	for _, call := range order {
		reply := &replies[slices.Index(calls, call)]
		switch call {
		case "reset":
			used, forgotten = 0, true
			*reply = "<nil>"
			continue
		case "other":
			admitted := used+3 <= 9
			if admitted {
				used += 3
			}
			*reply = fmt.Sprint(admitted, error(nil))
			continue
		case "deadline":
			if state == reservation.Held {
				state = reservation.Expired
				if action != reservation.Spend {
					count(0)
				}
			}
			continue
		case "commit 3", "commit 6":
			units := int64(call[len(call)-1] - '0')
			if action == inFlight {
				units = 0
			}
			switch state {
			case reservation.Held:
				state = reservation.Committed
				count(units)
			case reservation.Expired:
				state = reservation.Late
				count(units)
			}
		case "release":
			if state == reservation.Held {
				state = reservation.Released
				count(0)
			}
		}
		*reply = fmt.Sprint(state, counted, error(nil))
	}
	return fmt.Sprint(replies, 9-used)
}

// Over Redis units are held by the server that was asked, and count there.
//
// Promise: Redis and engines answer the commands of reservations alike.
func TestReservationsOverRedisAreThoseOfAnEngine(t *testing.T) {
	over, in, r, seed, one := twins(t)
	limit := func() string {
		return one("slow", "login", "window_6/300d", "sliding_7/300d", "at_most_5/300d")
	}
	for step := range 500 {
		under := limit() + " " + one("a", "b", "c")
		command := one(
			fmt.Sprintf("RAL.RESERVE %s %s %s %s %s", under, one("1", "2", "3", "7", "0"), one("50000", "90000"), one("spend", "release"), one("r", "s", "t", "u")),
			fmt.Sprintf("RAL.COMMIT %s %s %s", under, one("r", "s", "t", "u"), one("0", "1", "2", "3", "9", "-1")),
			fmt.Sprintf("RAL.RELEASE %s %s", under, one("r", "s", "t", "u")),
			fmt.Sprintf("RAL.RESET %s %s", strings.Fields(under)[1], strings.Fields(under)[0]),
			fmt.Sprintf("RAL.PEEK %s %s", strings.Fields(under)[1], strings.Fields(under)[0]),
		)
		want, got := in.do(command), over.do(command)
		require.True(t, alike(want, got), "seed %d, step %d: %s: %v, and %v in an engine", seed, step, command, got, want)
	}
	// A change that Redis cannot count is an error, also when it is repeated.
	id := over.holds("window_60/300d d 4 50000 release")
	r.Kill()
	// The breaker opens.
	for range 4 {
		over.do("RAL.TAKE e window_60/300d")
	}
	outage := replyError("ERR Redis could not be asked: ask this server again later (INFO has the cause)")
	for range 2 {
		assert.Equal(t, outage, over.do("RAL.COMMIT window_60/300d d "+id+" 1"))
	}
	assert.Equal(t, false, over.do("RAL.RESERVE window_60/300d d 4 50000 release").(map[string]any)["allowed"], "a verdict, by -outage")
}

// Promise: Servers of one Redis hold reservations of units in flight to one limit; a server that ends gives its own back.
func TestReservationsInFlightOverRedis(t *testing.T) {
	config, _ := redistest.Open(t, fleet.FallbackClosed)
	config.Fleet.Term = 3 * time.Second
	open := func() (*families.Families, *client) {
		keep, err := families.New(config)
		require.NoError(t, err)
		return keep, connect(t, Config{Families: keep}).three()
	}
	const limit = "in_flight_2,_1h_at_most"
	one, by := open()
	_, other := open()
	left := func() int64 { return other.do("RAL.PEEK ann " + limit).(map[string]any)["remaining"].(int64) }
	var id string
	require.Eventually(t, func() bool {
		id = by.holds(limit + " ann 1 50000 release")
		return id != ""
	}, time.Minute, 10*time.Millisecond, "a Redis without data admits nothing for a term")
	theirs := other.holds(limit + " ann 1 50000 release")
	require.NotEmpty(t, theirs)
	assert.Empty(t, by.holds(limit+" ann 1 50000 release"))
	assert.Equal(t, stands("committed", 0, 0), by.do("RAL.COMMIT "+limit+" ann "+id+" 7"))
	assert.EqualValues(t, 1, left())
	assert.Equal(t, stands("unknown", 0, 0), by.do("RAL.RELEASE "+limit+" ann "+theirs), "another server's")
	require.NotEmpty(t, by.holds(limit+" ann 1 1 release"))
	assert.Eventually(t, func() bool { return left() == 1 }, time.Minute, time.Millisecond, "its deadline")
	require.NotEmpty(t, by.holds(limit+" ann 1 50000 release"))
	assert.Zero(t, left())
	require.NoError(t, one.Close())
	assert.Eventually(t, func() bool { return left() == 1 }, time.Minute, time.Millisecond)
	assert.Equal(t, stands("released", 0, 0), other.do("RAL.RELEASE "+limit+" ann "+theirs))
	assert.EqualValues(t, 2, left())
}

// Promise: A reservation takes at most 1 KB, and 2 KB with the longest key and ID; `-reserve-longest` after its end 250 bytes stay at most.
func TestReservationsTakeBoundedMemory(t *testing.T) {
	const n = 4000
	for length, most := range map[int]float64{20: 1e3, maxKey: 2e3} {
		inBubble(t, Config{Reserve: ReserveConfig{MaxIDs: 100 * n}}, func(t *testing.T, c *client) {
			// The keys have their place already.
			key := func(i int) string { return fmt.Sprintf("%0*d", length, i) }
			for i := range n {
				c.send("RAL.TAKE", key(i), "window 1000/h")
			}
			before, _ := memory()
			for i := range n {
				c.send("RAL.RESERVE", "window 1000/h", key(i), "1", "60000", "release", key(i))
			}
			held, _ := memory()
			assert.Equal(t, n, c.server.Stats().Reservations.Held)
			assert.Less(t, (held-before)/n, most, "held, with keys of %d bytes", length)
			time.Sleep(time.Minute)
			synctest.Wait()
			ended, _ := memory()
			assert.Equal(t, n, c.server.Stats().Reservations.Ended)
			assert.Less(t, (ended-before)/n, most, "ended, with keys of %d bytes", length)
			time.Sleep(time.Minute)
			synctest.Wait()
			assert.Zero(t, c.server.Stats().Reservations.Ended)
			after, _ := memory()
			t.Logf("keys of %d bytes: %.0f bytes held, %.0f ended, %.0f after", length, (held-before)/n, (ended-before)/n, (after-before)/n)
			assert.Less(t, (after-before)/n, 250., "after, with keys of %d bytes", length)
		})
	}
}

// newDesk returns reservations on their own, whose clock stands at now, with a key of 9 units.
func newDesk(t *testing.T, file string) (r *reservations, u configured.Use, now *atomic.Int64) {
	t.Helper()
	keep, err := families.New(families.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, keep.Close()) })
	call := limitsOf(t, keep, file).Begin()
	u, _ = call.Find([]byte("slow"), []byte("ann"))
	t.Cleanup(call.End)
	config := ReserveConfig{}
	require.NoError(t, config.complete())
	r, now = newReservations(config), new(atomic.Int64)
	r.now = func() time.Duration { return time.Duration(now.Load()) }
	return r, u, now
}

// gated is a family whose takes wait for the gate, as those over a slow network do.
type gated struct {
	families.Family
	limits.Limiter[string]
	gate chan struct{}
	held *atomic.Int64
}

func (g gated) ByCall() limits.Limiter[string] { return g }

func (g gated) Hold(ctx context.Context, call limits.Call[string]) (limits.Grant, error) {
	g.held.Add(1)
	<-g.gate
	return g.Limiter.Hold(ctx, call)
}

// Promise: Commands that name a reservation wait until an earlier one on it is done, and then count once.
func TestCommandsOnAReservationComeOneAfterAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, u, _ := newDesk(t, limitsFile)
		slowly := u
		family := gated{u.Family, u.Family.ByCall(), make(chan struct{}), new(atomic.Int64)}
		slowly.Family = family
		ctx, id := t.Context(), idOf(u, []byte("r"))
		var decisions [2]policy.Decision
		for i := range decisions {
			go func() { _, decisions[i], _ = r.reserve(ctx, slowly, id, 4, time.Second, reservation.Spend) }()
		}
		synctest.Wait()
		var committed, extended standing
		go func() { committed, _ = r.commit(ctx, u, id, 3) }()
		synctest.Wait()
		assert.Zero(t, committed)
		family.gate <- struct{}{}
		synctest.Wait()
		assert.EqualValues(t, 1, family.held.Load(), "the second call takes nothing")
		assert.Equal(t, decisions[0], decisions[1])
		assert.True(t, decisions[0].Allowed)
		assert.Equal(t, standing{reservation.Committed, 3, 0}, committed)
		extended, err := r.changeKnown(ctx, id, extend)
		assert.NoError(t, err)
		assert.Equal(t, committed, extended)
		left, err := u.Family.TakeWith(ctx, u.Limit, u.Key, 0)
		assert.NoError(t, err)
		assert.EqualValues(t, 6, left.Remaining)
	})
}

// Promise: A deadline holds to the instant, also if the server is late to apply it.
func TestDeadlineIsAppliedByTheNextCommand(t *testing.T) {
	r, u, now := newDesk(t, limitsFile)
	ctx, id := t.Context(), idOf(u, []byte("r"))
	left := func() int64 {
		d, err := u.Family.TakeWith(ctx, u.Limit, u.Key, 0)
		require.NoError(t, err)
		return d.Remaining
	}
	for i, command := range []func() (standing, error){
		func() (standing, error) { return r.changeKnown(ctx, id, (*book).Release) },
		func() (standing, error) { return r.changeKnown(ctx, id, extend) },
		func() (standing, error) { return r.commit(ctx, u, id, 6) },
		func() (standing, error) {
			_, _, err := r.reserve(ctx, u, id, 4, time.Second, reservation.Release)
			return standing{state: reservation.Expired}, err
		},
	} {
		id = idOf(u, []byte(fmt.Sprint(i)))
		_, d, err := r.reserve(ctx, u, id, 4, time.Second, reservation.Release)
		require.True(t, err == nil && d.Allowed)
		now.Add(int64(time.Second) - 1)
		require.EqualValues(t, 5, left())
		now.Add(1)
		got, err := command()
		require.NoError(t, err)
		if i == 2 {
			require.Equal(t, standing{reservation.Late, 6, 0}, got)
			require.EqualValues(t, 3, left())
			_, err = u.Family.Reset(ctx, u.Key)
			require.NoError(t, err)
			continue
		}
		require.Equal(t, standing{reservation.Expired, 0, 0}, got, i)
		require.EqualValues(t, 9, left(), i)
	}
}

func TestLaterReservationMayEndFirst(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, c *client) {
		c.three().holds("slow bob 4 50000 release")
		time.Sleep(time.Second)
		synctest.Wait()
		c.holds("slow ann 4 2000 release")
		time.Sleep(2*time.Second - 1)
		synctest.Wait()
		assert.EqualValues(t, 5, c.left())
		time.Sleep(1)
		synctest.Wait()
		assert.EqualValues(t, 9, c.left())
	})
}
