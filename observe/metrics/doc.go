// Package metrics names the counters of limiters and reads them for monitoring. Module
// observe/ralprom exports to Prometheus, and module observe/ralotel to OpenTelemetry, the same
// metrics under the same names:
//
//	err := ralprom.Register(prometheus.DefaultRegisterer, metrics.Engine(limiter))
//
// A scrape reads counters that the limiter keeps anyway. A call pays nothing for it, and a scrape
// does not walk the keys. Labels are the limiter's name and a result or reason from a fixed list,
// never a key: clients cannot add series.
//
// Later versions add names; existing names keep their meaning: see docs/metrics.md. limiters.go has
// the table of an engine; other packages have theirs in metrics.go. Start reading at [New] in
// source.go.
package metrics
