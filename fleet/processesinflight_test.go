package fleet

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/fleet/internal/redistest"
	"github.com/ral-limiter/ral/fleet/internal/slots"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// inFlightReply is a server's reply to "enter", "release" of its oldest slot, and "tell".
type inFlightReply struct {
	Source  limits.Source
	Allowed bool
	Emptied bool
	// Slots answer "tell".
	Slots []slotTold
}

// slotTold is a unit that a server admitted, and when it counted: from after the answer until before its
// release, or until the server has lost it by its clock. All times are in nanoseconds of Unix time.
type slotTold struct {
	Source      limits.Source
	Begun, Over int64
}

const inFlightKey, inFlightTerm, inFlightLongest = "a", time.Second, time.Hour

// serveInFlight is serve under a limit in flight.
func serveInFlight(j serverJob) error {
	c := at(j.Addr, policy.Must(policy.InFlight(j.InFlight, inFlightLongest)))
	c.Name, c.Budget, c.Outage, c.Servers, c.Term = j.Name, serverBudget, j.Outage, j.Servers, inFlightTerm
	l, err := New(c)
	if err != nil {
		return err
	}
	defer l.Close()
	type slot struct {
		Reservation
		slotTold
	}
	var held, over []*slot
	replies := json.NewEncoder(os.Stdout)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var r inFlightReply
		switch lines.Text() {
		case "enter":
			got, err := l.Reserve(context.Background(), inFlightKey, 1, 0)
			if err != nil {
				return err
			}
			r.Source, r.Allowed, r.Emptied = got.Source(), got.Allowed, errors.Is(got.Err(), ErrEmptied)
			if got.Allowed {
				held = append(held, &slot{got, slotTold{Source: got.Source(), Begun: time.Now().UnixNano()}})
			}
		case "release":
			if len(held) > 0 {
				s := held[0]
				s.Over = min(time.Now().UnixNano(), l.slots.overAt(&s.Reservation))
				// Without Redis the slot leaves later.
				_ = s.Release(context.Background())
				held, over = held[1:], append(over, s)
			}
		case "tell":
			for _, s := range slices.Concat(held, over) {
				one := s.slotTold
				if one.Over == 0 {
					one.Over = l.slots.overAt(&s.Reservation)
				}
				r.Slots = append(r.Slots, one)
			}
		}
		if err := replies.Encode(r); err != nil {
			return err
		}
	}
	return nil
}

// overAt returns when the units of a reservation are lost, or end, if nothing confirms them.
func (s *slotKeeper) overAt(r *Reservation) (nanos int64) {
	s.do(func(book *slots.Book, now slots.Time) {
		nanos = time.Now().Add(time.Duration(book.Until(r.slot()) - now)).UnixNano()
	})
	return nanos
}

// inFlightServer is a process that serves calls in flight, and its caller.
type inFlightServer struct {
	*process
	// mu is held for a request and its reply.
	mu sync.Mutex
	// ended means that the process was killed.
	ended                               bool
	byRedis, admitted, emptied, refused atomic.Int64
	slots                               []slotTold
}

func (s *inFlightServer) request(what string) (r inFlightReply, err error) {
	if _, err = fmt.Fprintln(s.asks, what); err == nil {
		err = s.replies.Decode(&r)
	}
	return r, err
}

// call makes calls until ended is closed or the process is killed.
func (s *inFlightServer) call(ended <-chan struct{}) error {
	for {
		select {
		case <-ended:
			return nil
		default:
		}
		what := "enter"
		if rand.IntN(5) < 2 {
			what = "release"
		}
		s.mu.Lock()
		if s.ended {
			s.mu.Unlock()
			return nil
		}
		r, err := s.request(what)
		s.mu.Unlock()
		if err != nil {
			return err
		}
		if what == "enter" {
			s.count(r)
		}
		time.Sleep(time.Duration(rand.IntN(int(4 * time.Millisecond)))) // wall: its pace, which is not judged
	}
}

func (s *inFlightServer) count(r inFlightReply) {
	if r.Source == limits.SourceRedis {
		s.byRedis.Add(1)
	}
	switch {
	case r.Allowed:
		s.admitted.Add(1)
	case r.Emptied:
		s.emptied.Add(1)
	default:
		s.refused.Add(1)
	}
}

// maxAtOnce returns how many of the slots counted at once, at most.
func maxAtOnce(all []slotTold) (highest int) {
	type edge struct {
		instant int64
		count   int
	}
	var edges []edge
	for _, s := range all {
		if s.Over > s.Begun {
			edges = append(edges, edge{s.Begun, 1}, edge{s.Over, -1})
		}
	}
	slices.SortFunc(edges, func(a, b edge) int {
		return cmp.Or(cmp.Compare(a.instant, b.instant), a.count-b.count)
	})
	now := 0
	for _, e := range edges {
		now += e.count
		highest = max(highest, now)
	}
	return highest
}

// TestProcessesKeepTheLimitInFlight has four processes keep a limit in flight. One is stopped for longer than
// a term and goes on, one is killed, and Redis is killed and restarts empty. What Redis admits is never
// above the limit, of slots that their servers have not lost, whatever the machine does meanwhile: a slot
// is lost by the server's clock, not when its server gets to run. In the end all comes back.
// Promise: Several processes keep a limit in flight while they are stopped and killed, and Redis restarts empty.
func TestProcessesKeepTheLimitInFlight(t *testing.T) {
	if testing.Short() {
		t.Skip("several processes, and a Redis that is killed")
	}
	const servers, limit = 4, 9
	for _, outage := range []Fallback{FallbackClosed, FallbackShare} {
		t.Run(fmt.Sprint("fallback ", outage), func(t *testing.T) {
			t.Parallel()
			redis := redistest.Start(t, redistest.Options{})
			j := serverJob{Addr: redis.Addr(), Name: name(), InFlight: limit, Outage: outage, Servers: servers}
			ended, failed := make(chan struct{}), make(chan error, servers)
			var all [servers]*inFlightServer
			var calling sync.WaitGroup
			for i := range all {
				all[i] = &inFlightServer{process: startServer(t, j)}
				calling.Go(func() {
					if err := all[i].call(ended); err != nil {
						failed <- err
					}
				})
			}
			more := func(what string, count func(*inFlightServer) *atomic.Int64, by ...*inFlightServer) {
				t.Helper()
				before := make([]int64, len(by))
				for i, s := range by {
					before[i] = count(s).Load()
				}
				inTime(t, func() bool {
					select {
					case err := <-failed:
						require.NoError(t, err)
					default:
					}
					for i, s := range by {
						if count(s).Load() < before[i]+10 {
							return false
						}
					}
					return true
				}, what)
			}
			byRedis := func(s *inFlightServer) *atomic.Int64 { return &s.byRedis }
			admitted := func(s *inFlightServer) *atomic.Int64 { return &s.admitted }
			refused := func(s *inFlightServer) *atomic.Int64 { return &s.refused }

			more("calls are admitted", admitted, all[:]...)
			more("the limit is what refuses", refused, all[:]...)

			stopped := all[0]
			require.NoError(t, stopped.cmd.Process.Signal(syscall.SIGSTOP))
			time.Sleep(2 * inFlightTerm) // wall: the other servers get its places meanwhile
			more("others go on", admitted, all[1:]...)
			require.NoError(t, stopped.cmd.Process.Signal(syscall.SIGCONT))
			more("it goes on", byRedis, stopped)

			killed := all[1]
			killed.mu.Lock()
			killed.slots = must.Get(killed.request("tell")).Slots
			require.NoError(t, killed.cmd.Process.Kill())
			killed.ended = true
			killed.mu.Unlock()
			alive := slices.Concat(all[:1], all[2:])
			more("others go on", admitted, alive...)

			redis.Kill()
			require.NoError(t, redis.Restart())
			more("calls enter again", admitted, alive...)
			close(ended)
			calling.Wait()

			redisSlots, count, emptied := []slotTold(nil), 0, int64(0)
			for _, s := range all {
				emptied += s.emptied.Load()
				if !s.ended {
					s.slots = must.Get(s.request("tell")).Slots
				}
				var shares []slotTold
				for _, slot := range s.slots {
					if slot.Source == limits.SourceShare {
						shares = append(shares, slot)
					} else {
						redisSlots = append(redisSlots, slot)
					}
				}
				count += len(shares)
				assert.LessOrEqual(t, maxAtOnce(shares), limit/servers, "a share had more units in use than its part")
			}
			t.Logf("%d admitted by Redis, %d by shares; %d refused by an empty Redis", len(redisSlots), count, emptied)
			assert.LessOrEqual(t, maxAtOnce(redisSlots), limit, "Redis had more units in use than the limit")
			if outage == FallbackClosed {
				assert.Zero(t, count)
			}

			admin := redis.Client(t)
			for _, s := range alive {
				for range limit + limit/servers {
					must.Get(s.request("release"))
				}
			}
			inTime(t, func() bool {
				names := must.Get(admin.Do(t.Context(), admin.B().Keys().Pattern("ral:"+j.Name+":i:*").Build()).AsStrSlice())
				return len(names) == 0
			}, "nothing is left")
			for _, s := range alive {
				require.NoError(t, s.asks.Close())
				require.NoError(t, s.cmd.Wait())
			}
		})
	}
}
