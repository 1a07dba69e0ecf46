package report

// Glossary explains the columns and the method, for the help and for the page.
const Glossary = `  ops/s     calls a second of all callers together, by the clock; in the floods
            and in growth, new keys a second, their filing included
  cpus      average number of processors that the process had: fewer than
            GOMAXPROCS means other load, or callers that had to wait
  ns/op     processor time of a call, on all goroutines of the process (callers,
            limiter, garbage collector); waiting is not in it
  spread    distance of the round that is farthest from the median
  x floor   ns/op as a multiple of the floor's: the median of the ratios in each
            round. The floor is what no limiter by key can do without: hash the
            key, read the clock, advance one word of an array by a
            compare-and-swap. It takes part where keys are known, and in flood
  x map     the same of the xsync map: a lookup in an xsync map (for new keys a
            LoadOrStore), a clock read and a compare-and-swap. A limiter with
            another map may cost less. Both limit nothing, and need no
            compare-and-swap for refused calls
  x Choke   the same of Choke under a funnel on the same keys, the row Ral,
            beside Ral's other limits and verbs: there is no best row. Servers
            have x rald in its place: theirs of rald's
  allocs    allocations a call, and B/op bytes a call, of the whole process:
            those of the limiter's background goroutines are in it
  refused   share of the calls that were refused
  p50 ...   latencies of single calls. Each is timed by two clock reads, of
            which about one is in the figure. They come from passes of their
            own, so that timing does not slow down ops/s and ns/op; growth,
            being long, has one pass only, and says so
  worst     includes the pauses of the machine and of the garbage collector:
            that of the yardsticks tells how long they were
  B/key     heap by key, without the names of the keys; heap is all of it
  full GC   time of a full garbage collection with all keys there, and before
            without them
  idle heap share of the heap that is left after no key was asked for an idle
            time
  audit     what was admitted, the most that the limiter's own promise allowed,
            and what an ideal limiter of the same promise would have admitted.
            Allowed is, for each key, the lesser of the calls for it and of what
            the promise allows (a bucket capacity + rate x time, a fixed window
            so many in each window), summed up. "3 of 12 passes": in these the
            excess grew. "cannot bind": no key was asked for more than its
            limit. The limiter's own counts follow, if they are not 0
  Redis ns/op  processor time of redis-server by call, with -fleet; "with ns/op"
            is the sum of both processes. USAGE: bytes a key by MEMORY USAGE of
            Redis; there B/key is the fall of used_memory by key, with names and
            the tables of all keys, when all are forgotten
  share     what 4 servers admitted together of capacity + rate x time, when
            they are asked for three times the rate: evenly, or one for 85% of
            it, or each second another one. The audit is over every window of
            time
  * ~ !     * is the best of its column among limiters that are exact by their
            own design, kept their promise, and do all of their work in this
            process; ~ is not exact by design, ! admitted more than its promise

Method: keys are prepared before the clock starts. The contenders take turns,
round by round, each round beginning with another; the garbage collector runs
before each round. A pass that other load disturbed is repeated if there is
time, and counted as disturbed if that was no better. No other round is dropped,
except the one that Ctrl-C ends. On a busy machine figures of different runs
compare badly, ratios within a run well; but where cpus is near 1, callers
hardly met, and a hot key costs less. docs/benchmarking.md has more of it.
`
