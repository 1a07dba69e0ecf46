// Package scrape holds tests of what a Prometheus makes of Ral's metrics: of the alert
// rules in observe/metrics/alerts and the dashboard in observe/metrics/grafana, by promtool and by a real
// Prometheus that scrapes the examples.
package scrape
