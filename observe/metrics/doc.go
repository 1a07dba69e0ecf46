// Package metrics is the contract between limiters and monitoring systems: which metrics
// there are, what they are called, and how each is read from a limiter's counters. It has
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
// Names are added in later versions. A name that is there keeps its meaning. Start reading
// at All.
package metrics
