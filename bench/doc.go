// Package bench is a part of package engine that may change in any release: it measures limiters
// side by side and checks what they admit against their promises.
//
// A [Workload] says which keys are asked for, how often and under which [Limit]. A [Contender]
// makes a [Limiter] to ask. [Run] makes every contender do every workload and returns a [Report].
// Ral is a contender by both its protocols. Two yardsticks, [Floor] and [XsyncMap], limit nothing
// and are measured in the same rounds. The command ralbench adds other limiters.
//
// # How it measures
//
//   - Contenders take turns in each round, and each round begins one contender further on, so that
//     disturbances meet all alike. The report gives the median over the rounds with its spread.
//     Ratios to a yardstick are taken within each round first.
//   - Throughput is measured without timing single calls. Latencies come from their own passes,
//     with two clock reads around each call, and include about one read. One workload is too
//     long for two passes, and its report says so.
//   - Keys are prepared before the clock starts, in the order of the calls, and count as built
//     anew: each call has a text of its own, whose bytes are at hand and are never the bytes that
//     the limiter keeps.
//   - The loop that asks is the contender's own and takes a batch of keys, so that no contender
//     pays for an indirect call.
//   - Allocations are the difference of runtime.MemStats over a pass, with background
//     goroutines. The garbage collector runs before each round, and before each turn on new keys.
//   - Processor time is the process's own, so that a busy machine disturbs the ratios little.
//   - On Linux a pass counts as disturbed if other processes cost it more than 5% of its processor
//     time and more than 30 ms (from /proc/stat). It is kept and told. Nothing is repeated, which
//     would take time from other rounds: there are more rounds than are needed.
//   - The round of an interruption is dropped, and no other. When time is short, whole rounds are
//     not begun, equally many of each workload; the report says how many were.
//   - Memory is the heap after a full garbage collection, less the heap before the limiter was
//     made. See [Memory].
//
// # What it audits
//
// Callers count the admitted calls. Each limiter has a [Promise]: a bucket admits at most capacity
// + rate × time, a fixed window a number in each window. [Audit] compares with the sum over the
// keys of the lesser of the calls and the bound for a key, to find calls wrongly admitted. Calls
// wrongly refused show in Audit.Possible, the calls that an ideal limiter admits.
//
// Start reading at [Workload], then [Contender] and [Run].
package bench
