package fleetbench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/fleet"
)

// Options say what to measure, and with which Redis.
type Options struct {
	Server    string // the redis-server to start
	Workloads []bench.Workload
	Bench     bench.Options
	// Keys is the number of keys to measure memory with, 0 for none.
	Keys int
	// Share is the time for which usable shares are measured under Limits, 0 for not at all.
	Share  time.Duration
	Limits []bench.Limit

	contenders func(network, addr string, told ways) []bench.Contender // for tests
}

// Report holds the measurements beyond package bench.
type Report struct {
	Redis  string   `json:"redis"` // its version
	Work   []Work   `json:"work"`
	Memory []Memory `json:"memory,omitempty"`
	Shares []Share  `json:"shares,omitempty"`
	Goals  []Goal   `json:"goals,omitempty"`
}

const (
	memoryPart = "memory in Redis"
	sharePart  = "usable share"
)

// Run measures on a Redis that it starts and stops, until done or the context ends, which is no
// error. With an error, the reports hold the measurements before it. It is ErrOver if a mode of
// package fleet admitted more than its limit.
func Run(ctx context.Context, o Options) (report bench.Report, more Report, err error) {
	s, err := startServer(o.Server)
	if err != nil {
		return report, more, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	more.Redis = s.version

	begun := time.Now()
	r := run{Options: o, server: s, meter: newMeter(s.processorTime)}
	if o.contenders == nil {
		o.contenders = contenders
	}
	r.contenders = o.contenders(s.Network(), s.Addr(), func(name string, st fleet.Stats) { r.meter.ways[name] = st })
	report, err = r.speed(ctx)
	more.Work = r.meter.result(report)
	if err == nil {
		more.Memory, err = r.memory(ctx)
	}
	if err == nil {
		more.Shares, err = r.shares(ctx)
	}
	report.Interrupted = report.Interrupted || ctx.Err() != nil
	r.end()
	report.Took = time.Since(begun)
	more.Goals = goals(report, more)
	return report, more, errors.Join(err, audit(report, more))
}

func (o Options) rest() time.Duration {
	const aKey = 300 * time.Microsecond // a key in all contenders
	return time.Duration(o.Keys)*aKey + o.Share
}

type run struct {
	Options
	server     *server
	contenders []bench.Contender
	meter      *meter
	at         bench.Progress // the last
}

// tell passes on a progress, with the parts beyond bench in its total.
func (r *run) tell(p bench.Progress) {
	r.at = p
	if p.Total += r.rest(); r.Bench.Progress != nil {
		r.Bench.Progress(p)
	}
}

// next begins a step beyond bench. cost is the cost of the step before.
func (r *run) next(part, contender, doing string, cost time.Duration) {
	p := r.at
	// On a busy machine a part may take longer than estimated.
	p.Workload, p.CPU, p.Contender, p.Doing, p.Done = part, 0, contender, doing, min(p.Done+cost, p.Total+r.rest())
	r.tell(p)
}

func (r *run) finished(part string) {
	if r.Bench.Finished != nil {
		r.Bench.Finished(bench.WorkloadReport{Name: part})
	}
}

func (r *run) end() {
	if r.Bench.Progress != nil {
		total := r.at.Total + r.rest()
		r.Bench.Progress(bench.Progress{Doing: "done", Done: total, Total: total})
	}
}

func (r *run) speed(ctx context.Context) (bench.Report, error) {
	o := r.Bench
	o.Progress = func(p bench.Progress) {
		r.meter.step(p)
		r.tell(p)
	}
	o.Finished = func(w bench.WorkloadReport) {
		r.meter.finished(w)
		if r.Bench.Finished != nil {
			r.Bench.Finished(w)
		}
	}
	report, err := bench.Run(ctx, r.Workloads, r.contenders, o)
	return report, errors.Join(err, r.meter.fail)
}

func (r *run) memory(ctx context.Context) (all []Memory, err error) {
	if r.Keys == 0 || ctx.Err() != nil {
		return nil, nil
	}
	cost := time.Duration(0)
	for _, c := range r.contenders {
		// The contenders with the default budget have the keys of Exact and Leased.
		if !c.Elsewhere || c.Name == ExactByDefault || c.Name == LeasedByDefault {
			continue
		}
		r.next(memoryPart, c.Name, "asking for each key once", cost)
		cost = (r.rest() - r.Share) / 3
		m, err := measureMemory(ctx, r.server, c, r.Keys)
		if ctx.Err() != nil {
			return all, nil
		}
		if err != nil {
			return all, fmt.Errorf("memory: %w", err)
		}
		all = append(all, m)
	}
	r.next(memoryPart, "", "done", cost)
	r.finished(memoryPart)
	return all, nil
}

func (r *run) shares(ctx context.Context) ([]Share, error) {
	if r.Share == 0 || ctx.Err() != nil {
		return nil, nil
	}
	stop := make(chan struct{})
	told := make(chan struct{})
	go func() {
		defer close(told)
		const often = 500 * time.Millisecond
		ticker := time.NewTicker(often)
		defer ticker.Stop()
		r.next(sharePart, "", "4 servers under load", 0)
		for {
			select {
			case <-ticker.C:
				r.next(sharePart, "", "4 servers under load", often)
			case <-stop:
				return
			}
		}
	}()
	shares, err := measureShares(ctx, r.server.Addr(), r.Limits, r.Share)
	close(stop)
	<-told
	if err != nil {
		return nil, fmt.Errorf("usable share: %w", err)
	}
	r.finished(sharePart)
	return shares, nil
}

// ours are the contenders of package fleet.
var ours = []string{Exact, Leased, ExactByDefault, LeasedByDefault}

// audit returns ErrOver if a mode of package fleet admitted too many.
func audit(report bench.Report, more Report) (err error) {
	for _, w := range report.Workloads {
		for _, r := range w.Results {
			if slices.Contains(ours, r.Contender) && r.Audit != nil && !r.Audit.Clean() {
				err = errors.Join(err, fmt.Errorf("%w: %s in %s: %d too many of %d", ErrOver, r.Contender, w.Name, r.Audit.Over, r.Audit.Admitted))
			}
		}
	}
	for _, s := range more.Shares {
		err = errors.Join(err, s.Err())
	}
	return err
}
