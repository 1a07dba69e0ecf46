package rpclimit

import (
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/internal/testkit/admissiontest"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

func one(*Call) int64 { return 1 }

// Promise: Stream messages take as they come; a refused message ends the stream.
func TestStreamMessagesTakeAsTheyCome(t *testing.T) {
	streams, messages := admissiontest.Hourly[netip.Addr](t, 2), admissiontest.Hourly[netip.Addr](t, 10)
	length := func(c *Call) int64 { return int64(len(c.Message.(string))) }
	free := func(*Call) int64 { return 0 }
	g := Must(New(Options{CostReceived: length},
		Limit[netip.Addr]{Name: "streams", Limiter: streams, Key: ByAddr, CostReceived: free},
		Limit[netip.Addr]{Name: "bytes", Limiter: messages, Key: ByAddr, Cost: free, CostSent: length}))
	v, s := g.Begin(stream(from(alice)))
	assert.Equal(t, limits.Admitted, v.Reason)
	assert.Equal(t, [2]int64{1, 10}, [2]int64{streams.Peek(alice, 0).Remaining, messages.Peek(alice, 0).Remaining})
	v = s.Received("1234")
	assert.False(t, v.Refused())
	v = s.Sent("123")
	assert.False(t, v.Refused())
	assert.Equal(t, [2]int64{1, 3}, [2]int64{streams.Peek(alice, 0).Remaining, messages.Peek(alice, 0).Remaining})
	v = s.Received("1234")
	assert.Equal(t, limits.OverLimit, v.Reason)
	assert.Equal(t, "bytes", v.Limit)
	assert.Equal(t, CodeResourceExhausted, v.Code())
	assert.Equal(t, int64(4), v.Cost)
	v = s.Sent("1234567890+")
	assert.Equal(t, limits.NeverAdmitted, v.Reason)
	s.End(Served{Code: CodeResourceExhausted})
	assert.Equal(t, MessageStats{Admitted: 2, Refused: 2}, g.Stats().Messages)
	assert.Equal(t, uint64(1), g.Stats().Admitted)

	_, s = g.Begin(from(alice))
	assert.Nil(t, s)
	v = s.Received("1234567890+")
	assert.Equal(t, limits.Admitted, v.Reason)
	s.End(Served{})
}

// A stream with more messages than it paid for is charged for them.
//
// Promise: Streams return unused units.
func TestStreamsGiveBackUnusedUnits(t *testing.T) {
	e := admissiontest.Hourly[netip.Addr](t, 100)
	g := Must(New(Options{
		Cost:   func(*Call) int64 { return 50 },
		Charge: func(_ *Call, served Served) int64 { return served.Received + 2*served.Sent },
	}, Limit[netip.Addr]{Limiter: e, Key: ByAddr}))
	left := int64(100)
	for _, n := range []int64{0, 3, 20} {
		v, s := g.Begin(stream(from(alice)))
		assert.Equal(t, limits.Admitted, v.Reason)
		assert.Equal(t, left-50, e.Peek(alice, 0).Remaining)
		for range n {
			v = s.Received("in")
			assert.False(t, v.Refused())
			v = s.Sent("out")
			assert.False(t, v.Refused())
		}
		s.End(Served{})
		left -= 3 * n
		assert.Equal(t, left, e.Peek(alice, 0).Remaining)
	}
}

// Promise: A limit by message is decided with the message.
func TestLimitByMessageWaitsForTheMessage(t *testing.T) {
	byShop, byAddr := admissiontest.Hourly[string](t, 3), admissiontest.Hourly[netip.Addr](t, 10)
	byMessage := ByMessage(func(m string) string { return m })
	g := Must(New(Options{
		Cost:         func(c *Call) int64 { return 2 },
		Charge:       func(_ *Call, served Served) int64 { return served.Received },
		CostReceived: one,
		CostSent:     one,
	}, Limit[string]{Name: "shop", Limiter: byShop, Key: byMessage, WhenNoKey: limits.Refuse, CostReceived: func(*Call) int64 { return 0 }},
		Limit[netip.Addr]{Name: "address", Limiter: byAddr, Key: ByAddr}))
	left := func() [2]int64 { return [2]int64{byShop.Peek("a", 0).Remaining, byAddr.Peek(alice, 0).Remaining} }

	v, s := g.Begin(stream(from(alice)))
	assert.Equal(t, limits.Admitted, v.Reason)
	assert.Equal(t, [2]int64{3, 8}, left())
	v = s.Received("a")
	assert.Equal(t, limits.Admitted, v.Reason)
	assert.Equal(t, [2]int64{1, 7}, left())
	v = s.Sent("no shop")
	assert.Equal(t, limits.Admitted, v.Reason)
	assert.Equal(t, [2]int64{1, 6}, left(), "what is sent has no key of a request")
	v = s.Received("a")
	assert.Equal(t, limits.Admitted, v.Reason)
	assert.Equal(t, [2]int64{1, 5}, left())
	s.End(Served{})
	assert.Equal(t, [2]int64{1, 5}, left(), "2 messages are what it took at first")

	_, s = g.Begin(stream(from(alice)))
	v = s.Received("a")
	assert.Equal(t, limits.OverLimit, v.Reason)
	assert.Equal(t, "shop", v.Limit)
	s.End(Served{Code: CodeResourceExhausted})
	assert.Equal(t, [2]int64{1, 5}, left(), "no message was received")

	_, s = g.Begin(stream(from(alice)))
	v = s.Received(7)
	assert.Equal(t, limits.NoKey, v.Reason)
	s.End(Served{})

	c := from(alice)
	c.Message = "b"
	v, s = g.Begin(c)
	assert.Equal(t, limits.Admitted, v.Reason)
	s.End(Served{})
	assert.Equal(t, int64(2), byShop.Peek("b", 0).Remaining)
	assert.Equal(t, MessageStats{Admitted: 3, Refused: 2}, g.Stats().Messages, "a first message is counted once")
}

// A message waits up to the deadline of the stream.
func TestMessagesWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open[netip.Addr](t, policy.Must(policy.Funnel(1, 1, time.Second)))
		g := Must(New(Options{WaitUpTo: time.Minute, CostReceived: one, Cost: func(*Call) int64 { return 0 }}, Limit[netip.Addr]{Limiter: e, Key: ByAddr}))
		_, s := g.Begin(stream(within(t, from(alice), 3500*time.Millisecond)))
		began := time.Now()
		for i := range 4 {
			assert.Equal(t, limits.Admitted, s.Received(i).Reason)
			assert.Equal(t, time.Duration(i)*time.Second, time.Since(began))
		}
		v := s.Received(4)
		assert.Equal(t, limits.OverLimit, v.Reason)
		assert.Equal(t, 3*time.Second, time.Since(began), "refused at once")
		after, _ := v.Retry()
		assert.Equal(t, time.Second, after)
		time.Sleep(time.Second)
		v = s.Received(5)
		assert.Equal(t, CodeDeadlineExceeded, v.Code())
		s.End(Served{})
	})
}

// A first message waits for the limits of a first message, and then for those of every message.
func TestFirstMessageCountsBothWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		byShop, byAddr := open[string](t, policy.Must(policy.Funnel(1, 1, time.Second))), open[netip.Addr](t, policy.Must(policy.Funnel(1, 1, 4*time.Second)))
		byShop.Take("a", 1)
		byAddr.Take(alice, 1)
		var waits []time.Duration
		g := Must(New(Options{
			WaitUpTo: time.Minute, Cost: func(c *Call) int64 { return 1 },
			OnVerdict: func(_ *Call, v Verdict) { waits = append(waits, v.Waited) },
		}, Limit[string]{Name: "shop", Limiter: byShop, Key: ByMessage(func(m string) string { return m })},
			Limit[netip.Addr]{Name: "address", Limiter: byAddr, Key: ByAddr, Cost: func(*Call) int64 { return 0 }, CostReceived: one}))
		_, s := g.Begin(stream(from(alice)))
		v := s.Received("a")
		assert.Equal(t, limits.Admitted, v.Reason)
		s.End(Served{})
		assert.Equal(t, []time.Duration{0, time.Second, 3 * time.Second}, waits)
		assert.Equal(t, MessageStats{Admitted: 1}, g.Stats().Messages)
		assert.Equal(t, [2]any{uint64(1), 4 * time.Second}, [2]any{g.Stats().Delayed, g.Stats().DelayTime}, "a message counts once")
	})
}

// Both directions of a stream and its end may come at the same time, and nothing is lost.
func TestDirectionsAtTheSameTime(t *testing.T) {
	e, byMessage := admissiontest.Hourly[netip.Addr](t, 1_000_000), admissiontest.Hourly[string](t, 1_000_000)
	g := Must(New(Options{CostReceived: one, CostSent: one, Charge: func(_ *Call, served Served) int64 { return 0 }},
		Limit[netip.Addr]{Name: "address", Limiter: e, Key: ByAddr, Shadow: true},
		Limit[string]{Name: "message", Limiter: byMessage, Key: ByMessage(func(m string) string { return m }), CostReceived: func(*Call) int64 { return 0 }}))
	const streams, each = 16, 50
	var all sync.WaitGroup
	for range streams {
		_, s := g.Begin(stream(from(alice)))
		all.Go(func() {
			for range each {
				s.Received("m")
			}
		})
		all.Go(func() {
			for range each {
				s.Sent("m")
			}
		})
		all.Go(func() { s.End(Served{}) })
	}
	all.Wait()
	assert.Equal(t, int64(1_000_000-2*streams*each), e.Peek(alice, 0).Remaining, "a limit that is tried takes for messages, and its Cost comes back")
	assert.Equal(t, int64(1_000_000), byMessage.Peek("m", 0).Remaining, "also where the call ended first")
	assert.Zero(t, g.Stats().ShadowFailed["address"])
}

// Promise: A stream keeps no earlier message in memory.
func TestMessagesAreNotKept(t *testing.T) {
	g := Must(New(Options{CostReceived: one, CostSent: one}, Limit[netip.Addr]{Limiter: admissiontest.Hourly[netip.Addr](t, 10), Key: ByAddr}))
	_, s := g.Begin(stream(from(alice)))
	send := func(message func(any) Verdict) weak.Pointer[[1 << 20]byte] {
		m := new([1 << 20]byte)
		assert.Equal(t, limits.Admitted, message(m).Reason)
		return weak.Make(m)
	}
	kept := []weak.Pointer[[1 << 20]byte]{send(s.Received), send(s.Sent)}
	runtime.GC()
	for i := range kept {
		assert.Nil(t, kept[i].Value(), i)
	}
	runtime.KeepAlive(s)
}
