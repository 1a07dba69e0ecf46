package cell

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/table"
)

// Each way to a known key, given the same word, instant, units and limit: Choke, Take, a take by the general
// loop, an offer, an offer of one unit, a reservation, and looks. Each takes from a word of its own. They give the same answer,
// and leave the same word. A word is unused, used, or of the limit before.
func TestKnownKeysAreDecidedAlike(t *testing.T) {
	limits := map[string][2]policy.Policy{
		"funnel": {funnel(5, 1, time.Second), funnel(9, 2, time.Second)},
		"bursty": {policy.Must(policy.Bursty(2, time.Second, 5)), policy.Must(policy.Bursty(2, time.Second, 8))},
		"fixed":  {policy.Must(policy.FixedWindow(5, time.Second)), policy.Must(policy.FixedWindow(3, time.Second))},
		"slides": {policy.Must(policy.SlidingWindow(5, time.Second)), policy.Must(policy.SlidingWindow(7, time.Second))},
		"slots":  {policy.Must(policy.InFlight(5, time.Second)), policy.Must(policy.InFlight(7, time.Second))},
		"bare":   {bare{funnel(5, 1, time.Second)}, bare{funnel(6, 1, time.Second)}},
	}
	for name, pair := range limits {
		t.Run(name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(1, 2))
			decided := map[string]int{}
			for round := range 300 {
				d := newDesk(t, pair[0], nil)
				key := func(way string) string { return fmt.Sprint(way, " ", round) }
				ways := []string{"Choke", "Take", "general", "offer", "one", "Reserve", "Acquire"}
				used := random.Int64N(6)
				known := map[string]*reservation{}
				for _, way := range ways {
					// The key is known from then on.
					r := d.Reserve(key(way), 1, 0)
					known[way] = &r
				}
				d.settle()
				for _, way := range ways {
					if known[way].Keep(0); round%2 == 0 {
						// There is no offer of slots of a key that was reset.
						d.Take(key(way), 1)
						d.Reset(key(way))
					}
					d.Take(key(way), used)
				}
				if random.IntN(4) == 0 {
					// Some words are of the limit before.
					d.table.Apply(table.ChangeCommand[string](table.NewChange(pair[1], d.instant())))
				}
				d.advance(time.Duration(random.Int64N(int64(3 * time.Second))))
				n := 1 + random.Int64N(3)
				word := func(way string) uint64 { return d.view.Look(d.hashOf(key(way)), key(way)).Word() }

				var looked, probed, general policy.Decision
				d.Cell.Peek(key("general"), n, &looked)
				d.Probe(nil, key("general"), n, &probed)
				d.takeCounted(key("general"), &request{n: n}, &general)
				require.Equal(t, general, looked, "Peek answers otherwise than the general way")
				require.Equal(t, general, probed, "Probe answers otherwise than the general way")
				require.Equal(t, general, d.Take(key("Take"), n), "Take answers otherwise than the general way")
				require.Equal(t, word("general"), word("Take"))

				reserved := d.Reserve(key("Reserve"), n, 0)
				require.Equal(t, general, reserved.Decision, "Reserve answers otherwise than the general way")
				require.Equal(t, word("general"), word("Reserve"))
				acquired, err := d.Acquire(t.Context(), key("Acquire"), n, 0)
				require.Equal(t, general, acquired.Decision, "Acquire answers otherwise than the general way")
				require.Equal(t, general.Allowed, err == nil, "Acquire returns an error and a decision that do not agree")
				require.Equal(t, word("general"), word("Acquire"))

				var offered policy.Decision
				if o := d.offer(key("offer")); o.Level != nil {
					decided["offered"]++
					require.True(t, o.Take(n, &offered))
					require.Equal(t, general, offered, "an offer answers otherwise than the general way")
					require.Equal(t, offered.Allowed, offered.Allowed && o.Accept())
					require.Equal(t, word("general"), word("offer"))
				}
				if n == 1 {
					require.Equal(t, general.Allowed, d.Choke(key("Choke")), "Choke answers otherwise than the general way")
					require.Equal(t, word("general"), word("Choke"))
					if o := d.offer(key("one")); o.Level != nil {
						allowed, sure := o.TakeOne()
						require.True(t, sure)
						require.Equal(t, general.Allowed, allowed, "an offer of one unit answers otherwise than the general way")
						require.Equal(t, allowed, allowed && o.Accept())
						require.Equal(t, word("general"), word("one"))
					}
				}
				decided[fmt.Sprint(general.Allowed)]++
			}
			for _, answer := range []string{"true", "false", "offered"} {
				require.Greater(t, decided[answer], 20, answer)
			}
		})
	}
}
