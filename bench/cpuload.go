package bench

import (
	"os"
	"strconv"
	"strings"
	"time"
)

// busyTime returns the time for which the processors that this process may use have
// been busy so far, with any work, and the number of those processors. It reports
// false if the system does not tell.
type busyTime func() (busy time.Duration, processors int, known bool)

// machineBusy is a busyTime that reads /proc/stat of Linux. Time that a hypervisor
// took away counts as busy. Other systems have no such file, and report false.
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

// allowed returns which processors a process may run on, by its status: a list
// like 0-3,8. Without a list, it may run on all.
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

// A pass may lose this much to other processes and still count as undisturbed: 5% of
// the processor time that it wanted, or a few ticks, which are too coarse to tell.
const (
	harmlessShare = 0.05
	harmlessTime  = 3 * tick
)

// lostTime returns the processor time that a pass went without because others used
// the processors. The pass wanted so many of them; work of others on the remaining
// ones did not disturb it.
func lostTime(others, elapsed time.Duration, wanted, processors int) time.Duration {
	spare := time.Duration(max(processors-wanted, 0)) * elapsed
	return max(others-spare, 0)
}

// isDisturbed reports whether that loss is more than harmless.
func isDisturbed(lost, elapsed time.Duration, wanted int) bool {
	bearable := time.Duration(harmlessShare * float64(elapsed) * float64(wanted))
	return lost > max(bearable, harmlessTime)
}
