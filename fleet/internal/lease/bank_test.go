package lease

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/fleet/internal/lease/plan"
	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/fleet/internal/storetest"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/policy"
)

// memory is a bank in memory. Its clock is package time's, ppm parts per million faster.
type memory struct {
	plan  *plan.Plan
	start time.Time
	ppm   int64

	mu    sync.Mutex
	words map[string]uint64
	// paid has the units leased, less those to be given back.
	paid map[string]int64
}

func newMemory(plan *plan.Plan) *memory {
	return &memory{plan: plan, start: time.Now(), words: map[string]uint64{}, paid: map[string]int64{}}
}

func (m *memory) now() policy.Instant {
	t := int64(time.Since(m.start)) // wall: in bubbles alone
	return policy.Instant(t + t/1000*m.ppm/1000 + int64(time.Hour))
}

func (m *memory) payment(key string) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.paid[key]
}

func (m *memory) keys() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.words)
}

func (m *memory) lease(a Ask) Grant {
	// A Back has the short key as well.
	a.Key = store.Short(a.Key)
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	word := m.words[a.Key]
	_, d := m.plan.Policy.Take(word, now, 0, 0)
	units := min(d.Remaining, a.Most)
	if units < a.Need {
		_, d = m.plan.Policy.Take(word, now, a.Need, 0)
		return Grant{Taken: store.Taken{Decision: d, After: word, At: now}}
	}
	word, d = m.plan.Policy.Take(word, now, units, 0)
	if !d.Allowed {
		panic("what remains is refused")
	}
	m.words[a.Key] = word
	m.paid[a.Key] += units
	return Grant{Granted: units, Taken: store.Taken{Decision: d, After: word, At: now}}
}

func (m *memory) giveBack(b Back) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.paid[b.Name] -= b.Units
	m.words[b.Name] = m.plan.GiveBack(m.words[b.Name], m.now(), 0, b)
}

// takeFrom is Take, with the bank's decision for keys not worth a lease.
func takeFrom(l *Leases, key string, n int64, budget time.Duration) (policy.Decision, error) {
	d, err := l.Take(key, n, budget, nil)
	if !errors.Is(err, ErrFew) {
		return d, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), budget) // wall: how long a caller waits is its own matter
	defer cancel()
	g := l.config.Bank.Lease(ctx, []Ask{{Key: key, Need: n, Most: n}})[0]
	return g.Decision, g.Err
}

// wire is a server's way to the bank. Each direction takes half of a round trip.
type wire struct {
	bank  *memory
	mu    sync.Mutex
	trip  func() time.Duration
	fault func() fault
}

// fault is what happens to a message.
type fault struct {
	// lost means that the request is lost.
	lost bool
	// mute means that the answer is lost.
	mute bool
	// early is the delay of the request.
	early time.Duration
	// late is the delay of the answer.
	late time.Duration
}

var errWire = errors.New("the wire is cut")

func (w *wire) Lease(ctx context.Context, asks []Ask) []Grant {
	grants := make([]Grant, len(asks))
	err := w.send(ctx, func() {
		for i, a := range asks {
			grants[i] = w.bank.lease(a)
		}
	})
	if err != nil {
		// The bank may still write into grants.
		failed := make([]Grant, len(asks))
		for i := range failed {
			failed[i].Err = err
		}
		return failed
	}
	return grants
}

func (w *wire) Return(ctx context.Context, backs []Back) error {
	return w.send(ctx, func() {
		for _, b := range backs {
			w.bank.giveBack(b)
		}
	})
}

func (w *wire) change(trip time.Duration, f func() fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trip, w.fault = func() time.Duration { return trip }, f
}

// send calls do at the bank.
func (w *wire) send(ctx context.Context, do func()) error {
	w.mu.Lock()
	trip, f := w.trip(), fault{}
	if w.fault != nil {
		f = w.fault()
	}
	w.mu.Unlock()
	done := make(chan struct{})
	go func() {
		time.Sleep(trip/2 + f.early) // wall: in bubbles alone
		if f.lost {
			return
		}
		do()
		time.Sleep(trip/2 + f.late) // wall: in bubbles alone
		if !f.mute {
			close(done)
		}
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return errWire
	}
}

// onStore returns leases of a bank in a store, with a call that returns the units left there.
func onStore(t *testing.T, limit policy.Policy) (l *Leases, bank *OnStore, remaining func(key string) int64) {
	t.Helper()
	leasing := must.Get(plan.New(limit, 0))
	kept := must.Get(store.New(nil, store.Options{}).Limit(leasing.Policy))
	redis := storetest.New().Store(store.Options{})
	bank = NewOnStore(redis, leasing, kept)
	l = must.Get(newLeases(Config{Plan: leasing, Bank: bank, Name: store.Short, Timeout: time.Second}))
	return l, bank, func(key string) int64 { return must.Get(redis.Peek(t.Context(), kept, key)).Remaining }
}

// Units of a window come back at once, whatever the key's length.
func TestCloseGivesBackToRedis(t *testing.T) {
	for i, limit := range []policy.Policy{policy.Must(policy.FixedWindow(500, time.Hour)), policy.Must(policy.SlidingWindow(500, time.Hour))} {
		synctest.Test(t, func(t *testing.T) {
			key, used := [...]string{"key", strings.Repeat("key", 20_000)}[i], int64(0)
			l, _, remaining := onStore(t, limit)
			for ; l.Held(key) < 10; used++ {
				require.True(t, must.Get(takeFrom(l, key, 1, budget)).Allowed)
			}
			require.NoError(t, l.Close(t.Context()))
			assert.Equal(t, l.Limit()-used, remaining(key))
			assert.Positive(t, l.Stats().Returned)
		})
	}
}

// The delay that Redis may have counts as age.
func TestFunnelGivesBackTheUndrainedUnits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, bank, remaining := onStore(t, policy.Must(policy.Funnel(400, 2000, time.Second)))
		g := bank.Lease(t.Context(), []Ask{{Key: "key", Need: 200, Most: 200}})[0]
		require.NoError(t, g.Err)
		require.EqualValues(t, 200, g.Granted)
		require.NoError(t, bank.Return(t.Context(), []Back{{Name: "key", Units: 200, Word: g.After, At: g.At}}))
		assert.Equal(t, l.Limit()-int64(inTime)*2000/int64(time.Second), remaining("key"))
		require.NoError(t, l.Close(t.Context()))
	})
}
