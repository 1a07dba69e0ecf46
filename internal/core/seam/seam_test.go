package seam

import (
	"context"
	"hash/maphash"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// polling is a scheduler of a single goroutine that waits by sleeping and asking.
type polling struct{ points []string }

func (p *polling) Step(point string)        { p.points = append(p.points, point) }
func (p *polling) Fault(point string)       { p.Step(point) }
func (p *polling) Go(f func())              { f() }
func (p *polling) Refuse(point string) bool { p.Step(point); return true }
func (p *polling) Seed() maphash.Seed       { return maphash.MakeSeed() }
func (p *polling) Built(any, any)           {}
func (p *polling) Last() io.Writer          { return nil }

func (p *polling) Await(point string, patience time.Duration, ready func() bool) bool {
	p.Step(point)
	for began := time.Now(); time.Since(began) < patience; time.Sleep(time.Millisecond) {
		if ready != nil && ready() {
			return true
		}
	}
	return ready != nil && ready()
}

func seams() map[string]Seam { return map[string]Seam{"real": {}, "simulated": {&polling{}}} }

// Each wait ends alike with a scheduler and without, and no earlier.
func TestWaitsEndAlikeWithAndWithoutAScheduler(t *testing.T) {
	for name, s := range seams() {
		for _, ending := range []struct {
			what string
			then func(c chan int, end, closing func())
			want Event
		}{
			{"patience", func(chan int, func(), func()) {}, Elapsed},
			{"value", func(c chan int, _, _ func()) { c <- 7 }, Received},
			{"context", func(_ chan int, end, _ func()) { end() }, Ended},
			{"closed", func(_ chan int, _, closing func()) { closing() }, Closed},
		} {
			t.Run(name+", "+ending.what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c, done := make(chan int, 1), make(chan struct{})
					ctx, end := context.WithCancel(t.Context())
					defer end()
					time.AfterFunc(3*time.Second, func() { ending.then(c, end, func() { close(done) }) })
					began := time.Now()
					value, event := Receive(s, "point", 5*time.Second, c, ctx, done)
					assert.Equal(t, ending.want, event)
					want := 3 * time.Second
					if ending.want == Elapsed {
						want = 5 * time.Second
					}
					assert.Equal(t, want, time.Since(began).Truncate(time.Second))
					assert.Equal(t, ending.want == Received, value == 7)
				})
			})
		}
	}
}

// A wait for nil waits out its patience; Forever needs no timer.
func TestNothingIsWaitedFor(t *testing.T) {
	for _, s := range seams() {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			_, event := Receive[int](s, "point", time.Second, nil, nil, nil)
			assert.Equal(t, Elapsed, event)
			s.Sleep("point", time.Second)
			assert.Equal(t, 2*time.Second, time.Since(began))
			done := make(chan struct{})
			time.AfterFunc(time.Minute, func() { close(done) })
			_, event = Receive[int](s, "point", Forever, nil, nil, done)
			assert.Equal(t, Closed, event)
		})
	}
}

func TestSendTellsSentElapsedOrClosed(t *testing.T) {
	for _, s := range seams() {
		synctest.Test(t, func(t *testing.T) {
			c, done := make(chan int, 1), make(chan struct{})
			assert.Equal(t, Sent, Send(s, "point", time.Second, c, 1, done))
			assert.Equal(t, Elapsed, Send(s, "point", time.Second, c, 2, done))
			time.AfterFunc(time.Second, func() { <-c })
			assert.Equal(t, Sent, Send(s, "point", time.Minute, c, 3, done))
			assert.Equal(t, 3, <-c)
			c <- 4
			time.AfterFunc(time.Second, func() { close(done) })
			assert.Equal(t, Closed, Send(s, "point", time.Minute, c, 5, done))
		})
	}
}

func TestSchedulerSeesEachPoint(t *testing.T) {
	p := &polling{}
	for _, s := range []Seam{{}, {p}} {
		var mu sync.Mutex
		s.Lock("lock", &mu)
		require.False(t, mu.TryLock())
		mu.Unlock()
		asked := 0
		s.Yield("yield", nil)
		s.Yield("yield", func() bool { asked++; return asked > 2 })
		s.Step("step")
		assert.Equal(t, s.Scheduler != nil, s.Refuse("refuse"))
		assert.Equal(t, s.Scheduler != nil, asked == 3, "a real yield asks nothing")
	}
	assert.Equal(t, []string{"lock", "yield", "yield", "step", "refuse"}, p.points)
}

type generic[T any] struct{ seam Seam }

func (g *generic[T]) under(s Seam) { g.seam = s }

type shown struct{ seam Seam }

func TestGiveReachesAcceptedTypesOnly(t *testing.T) {
	before := setters
	defer func() { setters = before }()
	Accept(func(g interface{ under(Seam) }, s Seam) { g.under(s) })
	Accept(func(c *shown, s Seam) { c.seam = s })
	p := &polling{}
	a, b, c := &generic[int]{}, &generic[string]{}, &shown{}
	for _, part := range []any{a, b, c} {
		assert.True(t, Give(part, p))
	}
	for _, s := range []Seam{a.seam, b.seam, c.seam} {
		assert.Equal(t, Seam{p}, s)
	}
	assert.False(t, Give(&struct{}{}, p))
}
