package bench

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// busyTime returns the time that the processors of this process have been busy with any work, and
// their number. It reports false if unknown.
type busyTime func() (busy time.Duration, processors int, known bool)

// machineBusy reads /proc/stat of Linux. Time taken by a hypervisor counts as busy.
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

// tick is the unit of /proc/stat on every architecture of Go.
const tick = 10 * time.Millisecond

// parseBusy reads the lines of the process's processors. Fields are user, nice, system, idle,
// iowait, irq, softirq and steal; user and nice already contain the later fields.
func parseBusy(stat, status string) (busy time.Duration, processors int, known bool) {
	mine := allowed(status)
	for line := range strings.Lines(stat) {
		fields := strings.Fields(line)
		if len(fields) < 9 || !strings.HasPrefix(fields[0], "cpu") {
			continue
		}
		number, err := strconv.Atoi(fields[0][len("cpu"):])
		// The first line sums up all processors.
		if err != nil || !mine(number) {
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

// allowed reads the processors of a process, such as 0-3,8, from its status. The default is all.
func allowed(status string) func(processor int) bool {
	_, list, found := strings.Cut(status, "\nCpus_allowed_list:")
	list, _, _ = strings.Cut(list, "\n")
	return func(processor int) bool {
		for part := range strings.SplitSeq(strings.TrimSpace(list), ",") {
			var first, last int
			n, _ := fmt.Sscanf(part, "%d-%d", &first, &last)
			if n == 1 {
				last = first
			}
			if n > 0 && first <= processor && processor <= last {
				return true
			}
		}
		return !found
	}
}

// An undisturbed pass loses at most 5% of its processor time, or a few ticks, too coarse to tell.
const (
	harmlessShare = 0.05
	harmlessTime  = 3 * tick
)

// disturb sets the effect of other load on a pass that wanted so many processors, while all were
// busy for so long.
func (p *Pass) disturb(busy time.Duration, wanted, processors int) {
	p.Others = max(busy-p.CPU, 0)
	p.Disturbed = isDisturbed(lostTime(p.Others, p.Elapsed, wanted, processors), p.Elapsed, wanted)
}

// lostTime returns the processor time that others took from a pass. It wanted so many processors;
// work on the others did not disturb it.
func lostTime(others, elapsed time.Duration, wanted, processors int) time.Duration {
	spare := time.Duration(max(processors-wanted, 0)) * elapsed
	return max(others-spare, 0)
}

func isDisturbed(lost, elapsed time.Duration, wanted int) bool {
	bearable := time.Duration(harmlessShare * float64(elapsed) * float64(wanted))
	return lost > max(bearable, harmlessTime)
}
