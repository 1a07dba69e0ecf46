// Package bench is a part of package engine that may change in any release: it measures
// limiters side by side, and checks what they admit against what each of them promises.
//
// A [Workload] says which keys are asked for, how often and under which [Limit]; a
// [Contender] makes a [Limiter] to ask. [Run] makes every contender do every
// workload and returns a [Report]. Ral by both its protocols is a contender. Two
// yardsticks limit nothing and are measured in the same rounds: the [Floor], which
// no limiter by key can go below, and the [XsyncMap], on which many limiters are
// built. The command ralbench adds other limiters. Package bench prints nothing and
// has no flags.
//
// # How it measures
//
//   - Contenders take turns, round by round, and each round begins with another
//     one, so that a disturbance of the machine meets all of them alike. The report
//     gives the median over the rounds with its spread. Ratios to a yardstick are
//     taken within each round first.
//   - Throughput is measured without timing single calls. Latencies come from passes
//     of their own, in which two clock reads surround each call; the latencies
//     include about one of them, and nothing is subtracted. One workload is too long
//     for two passes, and its report says so.
//   - Keys are prepared before the clock starts, in the order in which they are asked
//     for. Each call has a string of its own, as in a server: its bytes are at hand,
//     but they are not the bytes that the limiter keeps.
//   - The loop that asks is the contender's own and takes a batch of keys, so that
//     no contender pays for an indirect call.
//   - Allocations are the difference of runtime.MemStats over a pass, so those of a
//     limiter's background goroutines count too. The garbage collector runs before
//     each round, and before each turn on new keys.
//   - Processor time is the process's own, so that a busy machine disturbs the
//     ratios little.
//   - On Linux a pass counts as disturbed if other processes cost it more than 5% of
//     its processor time and more than 30 ms (from /proc/stat). It is then repeated,
//     twice at most, and the pass that lost least is kept, without regard to its
//     figures. Repeats take at most a quarter of the run. None is tried when the run
//     is late, or after several in a row were useless. The long passes of growth and
//     memory are not repeated.
//   - No other round is dropped, except the one in which the run was interrupted.
//     When time is short, whole rounds are not even begun, and the report says how
//     many there were.
//   - Memory is the heap that a full garbage collection leaves, less what it left
//     before the limiter was made. See [Memory].
//
// # What it audits
//
// Callers count what passed. Each limiter has a [Promise]: a bucket promises at most
// capacity + rate × time, a fixed window promises so many in each window. For each
// key the promise allowed at most the lesser of the calls for it and of what it
// allows one key; the sum over the keys is what [Audit] compares with. That bound
// finds calls that should not have passed. Calls that should have passed and did not
// are found by what an ideal limiter of the same promise would have admitted of the
// same calls: Audit.Possible.
//
// Start reading at [Workload], then [Contender] and [Run].
package bench
