package main

import (
	"math"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/cmd/ralbench/internal/report"
)

// Files of a run with -cores, unless others are named.
const coresJSON, coresHTML = "ralbench-cores.json", "ralbench-cores.html"

// powersOfTwo returns 1, 2, 4 and so on up to n, and n.
func powersOfTwo(n int) (all []int) {
	for cpu := 1; cpu < n; cpu *= 2 {
		all = append(all, cpu)
	}
	return append(all, n)
}

// transferTime returns the nanoseconds in which a cache line that one core has changed reaches
// another: half of the shortest mean round trip of a word between two goroutines, or the time of the
// literature on a single processor.
func transferTime() float64 {
	if runtime.GOMAXPROCS(0) < 2 {
		return report.Transfers[0].Time
	}
	const trips, turns = 500, 100
	shortest := math.Inf(1)
	for range turns {
		var word atomic.Uint64
		done := make(chan struct{})
		// pass waits for the other's turns, and ends each with a swap.
		pass := func(first uint64) {
			for i := range uint64(trips) {
				for spins := 1; word.Load() != 2*i+first; spins++ {
					if spins%4096 == 0 {
						runtime.Gosched() // both may share a processor
					}
				}
				word.CompareAndSwap(2*i+first, 2*i+first+1)
			}
		}
		go func() {
			pass(1)
			close(done)
		}()
		begun := time.Now()
		pass(0)
		<-done
		shortest = min(shortest, float64(time.Since(begun))/(2*trips))
	}
	return shortest
}
