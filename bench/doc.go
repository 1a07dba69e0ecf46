// Package bench measures limiters side by side, and checks what they let pass
// against what their limit allowed.
//
// A [Workload] says which keys are asked, how often and under which [Limit]; a
// [Contender] makes a [Limiter] to ask. [Run] lets every contender do every
// workload and returns a [Report]. Ral in both its admission modes is a
// contender, and so is the [Floor]: the least that any limiter built on a map
// can cost, measured in the same rounds. Other limiters are contenders that the
// command ralbench adds. Package bench prints nothing and has no flags.
//
// # How it measures
//
//   - Contenders take turns, round by round, and each round begins with another
//     one, so that a disturbance of the machine meets all of them alike.
//     What is reported is the median over the rounds with its spread, and the
//     ratio to the floor is taken within each round first.
//   - Throughput is measured without timing single calls, but for one workload
//     that says otherwise. Their latencies come
//     from passes of their own, in which two clock reads surround each call; the
//     latencies include about one of them, and nothing is subtracted.
//   - Keys are prepared before the clock starts, in the order in which they
//     will be asked, and each call has a string of its own, as in a server: its
//     bytes are at hand, but they are not the very bytes that the limiter keeps.
//   - The loop that asks is the contender's own and takes a batch of keys, so
//     that nobody pays for an indirect call.
//   - Allocations are the difference of runtime.MemStats over a pass, so those
//     of a limiter's background goroutines count too. The garbage collector runs
//     before each round, and before each turn on new keys.
//   - Processor time is the process's own, so that a busy machine disturbs the
//     ratios little.
//   - A pass is disturbed if other processes used so much of the processors that
//     it went without more than a twentieth of what it wanted, and 30 ms: where
//     Linux tells, in /proc/stat. It is then done again, twice at the most, and
//     the pass that lost least is kept: by what it lost, not by its figures.
//     Repeats take no more than a quarter of the run, none are begun when it is
//     late, nor when several in a row were of no use. What takes seconds, growth and memory, is not done again.
//   - No other round is dropped, but for the one in which the run was interrupted.
//     When time is short, whole rounds are not even begun, and the report says
//     how many there were.
//   - Memory is the heap that a full garbage collection leaves, less what it left
//     before the limiter was made. See [Memory].
//
// # What it audits
//
// Callers count what passed. For each key the limit allowed at most the lesser
// of how often the key was asked and capacity + rate × time; the sum over the
// keys is the most that the limit allowed, and [Audit] compares the two. The
// arithmetic is in [Limit.Most] and [Limit.MostDuring]. That bound finds what
// should not have passed. What should have passed and did not is found by what an
// ideal limiter would have let pass of the same calls: Audit.Possible.
//
// Start reading at [Workload], then [Contender] and [Run].
package bench
