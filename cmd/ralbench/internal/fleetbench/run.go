package fleetbench

import (
	"context"
	"slices"

	"github.com/ral-limiter/ral/bench"
	"github.com/ral-limiter/ral/cmd/ralbench/internal/lab"
)

// Run measures on a Redis of its own: see [lab.Run].
func Run(ctx context.Context, workloads []bench.Workload, options bench.Options) (bench.Report, string, error) {
	return lab.Run(ctx, withShare(workloads, options), options, func(lab *lab.Lab) ([]bench.Contender, error) {
		server, err := startServer(lab)
		if err != nil {
			return nil, err
		}
		return contenders(server, workloads), nil
	})
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
