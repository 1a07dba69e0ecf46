package main

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/ral-limiter/ral/bench"
)

// histogram keeps latencies with three digits, exact below 2 µs, from 1 ns to a minute at most.
type histogram struct{ h *hdrhistogram.Histogram }

const maxLatency = time.Minute

func newHistogram() bench.Recorder {
	return &histogram{hdrhistogram.New(1, int64(maxLatency), 3)}
}

func (h *histogram) Record(duration time.Duration) {
	_ = h.h.RecordValue(int64(min(max(duration, 0), maxLatency))) // the range is kept: no error
}

func (h *histogram) Add(other bench.Recorder) { h.h.Merge(other.(*histogram).h) }

func (h *histogram) Reset() { h.h.Reset() }

func (h *histogram) Latency() bench.Latency {
	quantile := func(percent float64) time.Duration { return time.Duration(h.h.ValueAtQuantile(percent)) }
	return bench.Latency{
		Calls: h.h.TotalCount(),
		P50:   quantile(50),
		P90:   quantile(90),
		P99:   quantile(99),
		P999:  quantile(99.9),
		Worst: time.Duration(h.h.Max()),
	}
}
