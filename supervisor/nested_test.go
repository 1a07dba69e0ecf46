package supervisor

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// tree is a supervisor "top" over child x, supervisor "sub" (over a and b), and
// child y. The inner rig is not run by itself.
func tree(t *testing.T, strategy Strategy, subIntensity int) (top, sub *rig) {
	sub = build(t, Config{Name: "sub", Strategy: OneForAll, Intensity: subIntensity}, kid("a"), kid("b"))
	top = build(t, Config{Name: "top", Strategy: strategy, Intensity: 1}, kid("x"), kid("y"))
	children := []Child{top.children[0], sub.AsChild(), top.children[1]}
	s, err := New(top.cfg, children...)
	require.NoError(t, err)
	top.Supervisor = s
	top.run()
	return top, sub
}

// TestTree: the whole tree starts, heals locally, and stops in reverse.
func TestTree(t *testing.T) {
	in(t, func(t *testing.T) {
		var mu sync.Mutex
		var order []string
		leaf := func(name string) Child {
			return Child{Name: name, Run: func(ctx context.Context) error {
				<-ctx.Done()
				mu.Lock()
				defer mu.Unlock()
				order = append(order, name)
				return nil
			}}
		}
		branch := func(name string, children ...Child) Child {
			s, err := New(Config{Name: name}, children...)
			require.NoError(t, err)
			return s.AsChild()
		}
		top, err := New(Config{},
			leaf("a"),
			branch("B", leaf("b1"), branch("C", leaf("c1"), leaf("c2")), leaf("b2")),
			leaf("d"))
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- top.Run(ctx) }()
		synctest.Wait()
		cancel()
		require.NoError(t, <-done)
		require.Equal(t, []string{"d", "b2", "c2", "c1", "b1", "a"}, order)
	})
}

func TestNestedHealsLocally(t *testing.T) {
	in(t, func(t *testing.T) {
		top, sub := tree(t, OneForAll, 2)
		top.journaled("+x +y")
		sub.journaled("+a +b")
		sub.tell("a", fails)
		sub.journaled("!a -b +a +b")
		top.journaled("")
		require.Zero(t, top.Restarts())
		top.stop()
		top.journaled("-y -x")
		sub.journaled("-b -a")
	})
}

// TestNestedEscalates: a subtree that gives up is restarted by the one above it
// like any child, afresh; and when that happens too often, the top gives up, with
// the innermost cause.
func TestNestedEscalates(t *testing.T) {
	for _, tc := range []struct {
		strategy Strategy
		top      string
	}{{OneForOne, ""}, {RestForOne, "-y +y"}, {OneForAll, "-y -x +x +y"}} {
		t.Run(tc.strategy.String(), func(t *testing.T) {
			in(t, func(t *testing.T) {
				top, sub := tree(t, tc.strategy, 1)
				top.journaled("+x +y")
				sub.journaled("+a +b")

				sub.tell("a", fails)
				sub.journaled("!a -b +a +b")
				sub.tell("b", fails)
				sub.journaled("!b -a +a +b")
				top.journaled(tc.top)
				require.EqualValues(t, 1, top.Restarts())

				sub.tell("a", fails) // the intensity of sub is not used up any more
				sub.journaled("!a -b +a +b")
				top.isRunning()

				sub.tell("b", panics)
				err := top.ends()
				require.ErrorIs(t, err, ErrIntensity)
				var p *PanicError
				require.ErrorAs(t, err, &p)
				require.ErrorContains(t, err, "top: ")
				require.ErrorContains(t, err, "sub: ")
				sub.journaled("!b -a")
				top.journaled("-y -x")
			})
		})
	}
}

// TestNestedIsLate: a nested supervisor keeps its own limits, so that its parent
// need not have one.
func TestNestedIsLate(t *testing.T) {
	in(t, func(t *testing.T) {
		sub := build(t, Config{Name: "sub"}, kid("a").within(time.Minute).thatIsDeaf(), kid("b").thatIsDeaf())
		top, err := New(Config{Name: "top"}, sub.AsChild())
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		require.Equal(t, time.Second+DefaultShutdown+time.Minute, since(func() { require.NoError(t, top.Run(ctx)) }))
		require.Zero(t, top.Abandoned())
		require.Equal(t, 2, sub.Abandoned())
	})
}
