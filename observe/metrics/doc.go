// Package metrics makes the counters of limiters metrics: their names, and how each is read. It has
// no dependencies of its own. Module observe/ralprom exports to Prometheus, and module
// observe/ralotel to OpenTelemetry, the same metrics under the same names:
//
//	err := ralprom.Register(prometheus.DefaultRegisterer, metrics.Engine(limiter))
//
// A Source is read when it is scraped, from counters that the limiter keeps in any case. A
// call pays nothing for it, and a scrape does not walk the keys. Labels are the limiter's
// name and a result or reason from a fixed list. A key is never one, so the number of
// series does not depend on the clients.
//
// Names are added in later versions, and a name that is there keeps its meaning: docs/metrics.md
// has all. The table of an engine is in limiters.go, and other packages have theirs in files
// called metrics.go. Start reading at [New] in source.go.
package metrics
