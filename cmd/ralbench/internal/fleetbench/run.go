package fleetbench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/lab"
)

// ErrOver says that more was admitted than the limit allows.
var ErrOver = errors.New("more was admitted than the limit allows")

// Run measures on a Redis of its own: see [lab.Run]. The error is ErrOver if a mode of package fleet
// admitted more than its limit.
func Run(ctx context.Context, workloads []bench.Workload, options bench.Options) (bench.Report, string, error) {
	return run(ctx, workloads, options, contenders)
}

// run is Run with contenders that a test may replace.
func run(ctx context.Context, workloads []bench.Workload, options bench.Options, contenders func(*server, []bench.Workload) []bench.Contender) (bench.Report, string, error) {
	report, redis, err := lab.Run(ctx, withShare(workloads, options), options, func(l *lab.Lab) ([]bench.Contender, error) {
		server, err := startServer(l)
		if err != nil {
			return nil, err
		}
		return contenders(server, workloads), nil
	})
	return report, redis, errors.Join(err, audit(report))
}

// shareTurns is the time for which usable shares are measured, in turns of other workloads.
const shareTurns = 75

// withShare has the first usable share take all of the time, as all are measured together.
func withShare(workloads []bench.Workload, options bench.Options) []bench.Workload {
	timed, length := slices.Clone(workloads), shareTurns*options.Duration
	for i := range timed {
		if isShare(timed[i]) {
			timed[i].Duration, length = length, 1
		}
	}
	return timed
}

// audit returns ErrOver if a mode of package fleet admitted too many.
func audit(report bench.Report) (err error) {
	for _, workloadReport := range report.Workloads {
		for _, r := range workloadReport.Results {
			if strings.HasPrefix(r.Name, "Ral fleet") && r.Audit != nil && !r.Audit.Clean() {
				err = errors.Join(err, fmt.Errorf("%w: %s in %s: %d too many of %d", ErrOver, r.Name, workloadReport.Name, r.Audit.Over, r.Audit.Admitted))
			}
		}
	}
	return err
}
