package fleetbench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ral-limiter/ral/bench"
)

// Options say what to measure, and with which Redis.
type Options struct {
	Server    string // the redis-server to start
	Workloads []bench.Workload
	Bench     bench.Options
	// Share is the time for which usable shares are measured.
	Share time.Duration

	contenders func(*server, []bench.Workload) []bench.Contender // for tests
}

// ErrOver says that more was admitted than the limit allows.
var ErrOver = errors.New("more was admitted than the limit allows")

// Run measures on a Redis that it starts and stops, until done or the context ends, which is no
// error. With an error, the report holds the measurements before it. It is ErrOver if a mode of
// package fleet admitted more than its limit.
func Run(ctx context.Context, options Options) (report bench.Report, redis string, err error) {
	server, err := startServer(options.Server)
	if err != nil {
		return report, "", err
	}
	defer func() { err = errors.Join(err, server.stop()) }()
	if options.contenders == nil {
		options.contenders = contenders
	}
	report, err = bench.Run(ctx, withShare(options.Workloads, options.Share), options.contenders(server, options.Workloads), options.Bench)
	return report, server.version, errors.Join(err, server.failure(), audit(report))
}

// withShare has the first usable share take all of the time, as all are measured together.
func withShare(workloads []bench.Workload, share time.Duration) []bench.Workload {
	timed := slices.Clone(workloads)
	for i := range timed {
		if isShare(timed[i]) {
			timed[i].Duration, share = max(share, 1), 0
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
