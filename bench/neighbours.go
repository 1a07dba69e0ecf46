package bench

import (
	"os"
	"strconv"
	"strings"
	"time"
)

// busyTime tells how long the processors that this process may use have been
// busy so far, with whatever it was, and how many these are. It is false where
// the system does not tell.
type busyTime func() (busy time.Duration, processors int, known bool)

// machineBusy is busyTime as Linux tells it in /proc/stat. What a hypervisor took
// away counts as busy. Elsewhere there is no such file, and nothing is known.
func machineBusy() (time.Duration, int, bool) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0, false
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, 0, false
	}
	return parseBusy(string(stat), string(status))
}

// tick is the unit of /proc/stat: a hundredth of a second on every architecture
// that Go runs on.
const tick = 10 * time.Millisecond

// parseBusy reads the lines of the processors that the process may run on. Their
// fields are user, nice, system, idle, iowait, irq, softirq and steal; those
// after them are counted in user and nice already.
func parseBusy(stat, status string) (busy time.Duration, processors int, known bool) {
	mine := allowed(status)
	for line := range strings.Lines(stat) {
		fields := strings.Fields(line)
		if len(fields) < 9 || !strings.HasPrefix(fields[0], "cpu") {
			continue
		}
		number, err := strconv.Atoi(fields[0][len("cpu"):])
		if err != nil || !mine(number) { // the first line sums up all processors
			continue
		}
		processors++
		for i, field := range fields[1:9] {
			n, err := strconv.ParseInt(field, 10, 64)
			if err != nil {
				return 0, 0, false
			}
			if i != 3 && i != 4 {
				busy += time.Duration(n) * tick
			}
		}
	}
	return busy, processors, processors > 0
}

// allowed tells which processors a process may run on, by its status: a list
// like 0-3,8. Without one, it is all.
func allowed(status string) func(processor int) bool {
	_, list, found := strings.Cut(status, "\nCpus_allowed_list:")
	if !found {
		return func(int) bool { return true }
	}
	list, _, _ = strings.Cut(list, "\n")
	return func(processor int) bool {
		for part := range strings.SplitSeq(strings.TrimSpace(list), ",") {
			from, to, isRange := strings.Cut(part, "-")
			if !isRange {
				to = from
			}
			first, err1 := strconv.Atoi(from)
			last, err2 := strconv.Atoi(to)
			if err1 == nil && err2 == nil && first <= processor && processor <= last {
				return true
			}
		}
		return false
	}
}

// What a pass may lose to other processes and still count as undisturbed: a
// twentieth of the time that it wanted, and what a few ticks, being coarse, can
// feign.
const (
	harmless = 0.05
	feigned  = 3 * tick
)

// lost returns how much processor time a pass went without because others used
// the processors. It wanted so many of them; what others did on the remaining
// ones did not disturb it.
func lost(others, elapsed time.Duration, wanted, processors int) time.Duration {
	spare := time.Duration(max(processors-wanted, 0)) * elapsed
	return max(others-spare, 0)
}

// disturbs tells whether that loss is more than harmless.
func disturbs(lost, elapsed time.Duration, wanted int) bool {
	bearable := time.Duration(harmless * float64(elapsed) * float64(wanted))
	return lost > max(bearable, feigned)
}
