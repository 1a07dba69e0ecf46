package report

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/format"
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

// Transfers are the times that a compare-and-swap needs for a line that another core has changed,
// and the cores for which the model takes them if this machine has fewer: about 120, 320 and 430
// cycles of a Xeon of 2.13 GHz with the other core on the same die, one hop and two hops away, in
// David, Guerraoui and Trigonakis, Everything you always wanted to know about synchronization,
// SOSP 2013.
var Transfers = []struct {
	Cores int
	Time  float64 // in nanoseconds
}{{8, 56}, {16, 56}, {32, 150}, {128, 202}}

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

// Model returns the nanoseconds of a call of Ral in a workload on so many cores, by its measured
// cost on one core. It reports false if the run or the model has none.
func (d Document) Model(workload string, cores int, transfer float64) (float64, bool) {
	i := slices.IndexFunc(d.Workloads, func(w bench.WorkloadReport) bool { return w.Name == workload && w.CPU == 1 })
	modelled := slices.IndexFunc(CoreWorkloads(), func(name string) bool { return name == workload })
	if transfer == 0 || i < 0 || modelled < 0 || coreWorkloads[modelled].path == nil || d.Workloads[i].Result(ral) == nil {
		return 0, false
	}
	w := coreWorkloads[modelled]
	return w.path.cost(d.Workloads[i].Result(ral).NsPerOp.Median, transfer, cores, w.share), true
}

// CoresTable returns the costs of a call of Ral by number of cores, without rows unless the run was
// one with -cores.
func CoresTable(d Document) Table {
	t := Table{Title: "Ral by cores", Columns: words("workload", "cost"), About: fmt.Sprintf(
		"processor time of a call in ns, with as many callers. The model adds to the cost on one core the moves of cache lines: %s each here, "+
			"and for more cores than here the times of a larger machine. It takes a hot key's line from a core after each call, which may "+
			"keep it for several, and leaves out misses of memory.", format.Nanoseconds(d.Transfer))}
	if d.Transfer == 0 {
		return t
	}
	here := d.Settings.CPUs[len(d.Settings.CPUs)-1]
	for _, cpu := range d.Settings.CPUs {
		t.Columns = append(t.Columns, figures(strconv.Itoa(cpu))...)
	}
	for _, larger := range Transfers {
		if larger.Cores > here {
			t.Columns = append(t.Columns, figures(strconv.Itoa(larger.Cores))...)
		}
	}
	for _, name := range CoreWorkloads() {
		measured, model := []string{name, "measured"}, []string{name, "by the model"}
		for _, cpu := range d.Settings.CPUs {
			cell := nothing
			for _, w := range d.Workloads {
				if mine := w.Result(ral); w.Name == name && w.CPU == cpu && mine != nil {
					cell = costs.Show(*mine)
				}
			}
			measured, model = append(measured, cell), append(model, d.modelCell(name, cpu, d.Transfer))
		}
		for _, larger := range Transfers {
			if larger.Cores > here {
				measured, model = append(measured, nothing), append(model, d.modelCell(name, larger.Cores, larger.Time))
			}
		}
		t.Rows = append(t.Rows, Row{KindRal, measured}, Row{KindYardstick, model})
	}
	return t
}

func (d Document) modelCell(workload string, cores int, transfer float64) string {
	if x, ok := d.Model(workload, cores, transfer); ok {
		return format.Digits(x)
	}
	return nothing
}
