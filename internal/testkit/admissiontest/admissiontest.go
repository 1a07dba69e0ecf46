// Package admissiontest tests the promises of package admission on an adapter. An adapter is tested
// by itself only for what its protocol adds.
package admissiontest

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// Request is a request in the terms of every adapter. An adapter's functions find it by Of.
type Request struct {
	// Key is the key of limits without a Key of their own.
	Key string
	// Cost is for Options.Cost and Limit.Cost.
	Cost int64
	// Charge is for Options.Charge and Limit.Charge.
	Charge int64
	// Plan is for Limit.PolicyFor.
	Plan policy.Policy
	// Serve runs while the request is served. It may be nil.
	Serve func()

	verdict         limits.Verdict
	decided, served bool
}

type inContext struct{}

// Of returns the request of a context that Door.Serve has.
func Of(ctx context.Context) *Request { return ctx.Value(inContext{}).(*Request) }

// Decided tells a request its verdict. An adapter calls it from Options.OnVerdict.
func (r *Request) Decided(verdict limits.Verdict) { r.verdict, r.decided = verdict, true }

// Served is what an adapter's handler does with a request that passes.
func (r *Request) Served() {
	r.served = true
	if r.Serve != nil {
		r.Serve()
	}
}

// Options are the options that all adapters have.
type Options struct {
	Cost, Charge     func(r *Request) int64
	WaitUpTo, Spread time.Duration
	Shadow           bool
	Logger           *slog.Logger
}

// Limit is a limit that all adapters have. The Limiter is required.
type Limit struct {
	// Name is "limit" by default.
	Name    string
	Limiter limits.Limiter[string]
	// Key is Request.Key by default.
	Key          func(r *Request) string
	WhenNoKey    limits.WhenNoKey
	Cost, Charge func(r *Request) int64
	PolicyFor    func(r *Request) policy.Policy
	Shadow       bool
}

// Stats are the counters that all adapters have.
type Stats struct {
	// By leaves out Denied.
	By                     map[limits.Reason]uint64
	Delayed, Unsettled     uint64
	DelayTime              time.Duration
	Shadow                 bool
	Shadowed, ShadowFailed map[string]uint64
}

// Door is an adapter with its options and limits.
type Door struct {
	// Serve passes a request with that context through the limits, and calls Request.Served.
	Serve func(ctx context.Context)
	Stats func() Stats
}

// Open makes an adapter.
type Open func(t testing.TB, o Options, all []Limit) Door

// Number returns f as a function of an adapter's requests, or nil if f is nil.
func Number[R any](f func(request *Request) int64, ctx func(request R) context.Context) func(request R) int64 {
	if f == nil {
		return nil
	}
	return func(request R) int64 { return f(Of(ctx(request))) }
}

// Charge returns f as a Charge of an adapter, or nil if f is nil.
func Charge[R, S any](f func(request *Request) int64, ctx func(request R) context.Context) func(request R, served S) int64 {
	if f == nil {
		return nil
	}
	return func(request R, _ S) int64 { return f(Of(ctx(request))) }
}

// Plan returns f as a PolicyFor of an adapter, or nil if f is nil.
func Plan[R any](f func(request *Request) policy.Policy, ctx func(request R) context.Context) func(request R) policy.Policy {
	if f == nil {
		return nil
	}
	return func(request R) policy.Policy { return f(Of(ctx(request))) }
}

// Run runs the tests, each in a bubble of testing/synctest.
func Run(t *testing.T, open Open) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			c.run(t, open)
		})
	}
}

// door counts the verdicts of a Door.
type door struct {
	t testing.TB
	Door
	mu sync.Mutex
	by map[limits.Reason]uint64
}

func newDoor(t testing.TB, open Open, options Options, all ...Limit) *door {
	for i := range all {
		if all[i].Name == "" {
			all[i].Name = "limit"
		}
		if all[i].Key == nil {
			all[i].Key = func(request *Request) string { return request.Key }
		}
	}
	return &door{t: t, Door: open(t, options, all), by: map[limits.Reason]uint64{}}
}

// serve serves a request, and checks that it reaches the handler if its verdict says so.
func (d *door) serve(ctx context.Context, request Request) limits.Verdict {
	d.t.Helper()
	d.Serve(context.WithValue(ctx, inContext{}, &request))
	assert.True(d.t, request.decided, "the request has a verdict")
	assert.Equal(d.t, !request.verdict.Refused(), request.served, "%v: the request reaches the handler", request.verdict.Reason)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.by[request.verdict.Reason]++
	return request.verdict
}

// ask serves a request of a key that costs so much.
func (d *door) ask(key string, cost int64) limits.Verdict {
	d.t.Helper()
	return d.serve(context.Background(), Request{Key: key, Cost: cost})
}

// stats returns the counters, after it has compared them with the verdicts.
func (d *door) stats() Stats {
	d.t.Helper()
	stats := d.Stats()
	for reason := limits.Admitted; reason <= limits.Unavailable; reason++ {
		assert.Equal(d.t, d.by[reason], stats.By[reason], "%v: as many as verdicts", reason)
	}
	return stats
}

// timed is the reason of a request that began at 0, and the time when it was decided.
type timed struct {
	reason limits.Reason
	after  time.Duration
}

// atOnce serves requests that come at the same instant, in line.
func (d *door) atOnce(n int, request Request) []timed {
	d.t.Helper()
	began := time.Now()
	all := make([]timed, n)
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() { all[i] = timed{d.serve(context.Background(), request).Reason, time.Since(began)} })
		// The call has its place now.
		synctest.Wait()
	}
	wg.Wait()
	return all
}
