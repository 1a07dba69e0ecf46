package report

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/format"
)

// path is a way through Choke on a known key, and the locked instructions on it. A test counts them
// in the compiled code.
type path struct {
	shared int // on the entry's cache line, which callers of the key share
	own    int // on a stripe of the tally, which other goroutines seldom use
}

var (
	admitted = path{1, 1}
	refused  = path{0, 1}
)

// coreWorkloads are the workloads of a run with -cores. share is the part of the calls that the most
// frequent key has. The model is of known keys, so new keys have no path.
var coreWorkloads = []struct {
	name  string
	path  *path
	share float64
}{
	{"hot-pass", &admitted, 1},
	{"hot-refused", &refused, 1},
	{"uniform", &admitted, 1e-5},
	{"flood", nil, 0},
}

// CoreWorkloads returns the names of the workloads of a run with -cores.
func CoreWorkloads() (names []string) {
	for _, w := range coreWorkloads {
		names = append(names, w.name)
	}
	return names
}

// Transfer is the nanoseconds that a compare-and-swap needs for a line that another of so many cores
// has changed.
type Transfer struct {
	Cores int
	Time  float64
}

// Transfers are taken for more cores than this machine has: about 120, 320 and 430 cycles of a Xeon
// of 2.13 GHz with the other core on the same die, one hop and two hops away, in David, Guerraoui
// and Trigonakis, Everything you always wanted to know about synchronization, SOSP 2013.
var Transfers = []Transfer{{8, 56}, {16, 56}, {32, 150}, {128, 202}}

// cost returns the nanoseconds of processor time of a call on N cores that all call all the time.
// alone is the cost on one core.
//
// The cores hand a hot key's line round, so that a call waits for the N-1 others. A key drawn with
// share s of all calls has its line last written by another core in all but 1/N of them, and
// becomes a queue once its admissions need all the time that there is. One core hands over nothing.
func (p path) cost(alone, transfer float64, cores int, share float64) float64 {
	if cores == 1 {
		return alone
	}
	n := float64(cores)
	moved := alone + float64(p.shared)*transfer*(n-1)/n
	return max(moved, float64(p.shared)*transfer*n*share)
}

// Model returns the nanoseconds of a call of Ral in a workload with this transfer, by its measured
// cost on one core. It reports false if the run or the model has none.
func (d Document) Model(workload string, transfer Transfer) (float64, bool) {
	alone, i := d.on(workload, 1), slices.Index(CoreWorkloads(), workload)
	if alone == nil || i < 0 || coreWorkloads[i].path == nil || transfer.Time <= 0 {
		return 0, false
	}
	return coreWorkloads[i].path.cost(alone.NsPerOp.Median, transfer.Time, transfer.Cores, coreWorkloads[i].share), true
}

// on returns the result of Ral in a workload on so many cores, nil if there is none.
func (d Document) on(workload string, cores int) *bench.Result {
	for _, w := range d.Workloads {
		if w.Name == workload && w.CPU == cores {
			return w.Result(ral)
		}
	}
	return nil
}

// CoresTable returns the costs of a call of Ral by number of cores, without rows unless the run was
// one with -cores.
func CoresTable(document Document) Table {
	table := Table{Title: "Ral by cores", Columns: heads(true, "workload", "cost"), About: fmt.Sprintf(
		"processor time of a call in ns, with as many callers. The model adds to the cost on one core the moves of cache lines: %s each here, "+
			"and for more cores than here the times of a larger machine. It takes a hot key's line from a core after each call, which may "+
			"keep it for several, and leaves out misses of memory.", format.Nanoseconds(document.Transfer))}
	if document.Transfer == 0 {
		return table
	}
	var columns []Transfer
	for _, cpu := range document.Settings.CPUs {
		columns = append(columns, Transfer{cpu, document.Transfer})
	}
	columns = append(columns, slices.DeleteFunc(slices.Clone(Transfers), func(t Transfer) bool { return t.Cores <= slices.Max(document.Settings.CPUs) })...)
	for _, transfer := range columns {
		table.Columns = append(table.Columns, Head{Name: strconv.Itoa(transfer.Cores)})
	}
	for _, w := range coreWorkloads {
		measured, model := []string{w.name, "measured"}, []string{w.name, "by the model"}
		for _, transfer := range columns {
			figure, cost := nothing, nothing
			if result := document.on(w.name, transfer.Cores); result != nil {
				figure = costs.Show(*result)
			}
			if value, ok := document.Model(w.name, transfer); ok {
				cost = format.Digits(value)
			}
			measured, model = append(measured, figure), append(model, cost)
		}
		table.Rows = append(table.Rows, Row{KindRal, measured}, Row{KindYardstick, model})
	}
	return table
}
