// Package scrape tests the alert rules in observe/metrics/alerts and the dashboard in
// observe/metrics/grafana. It uses promtool, and a Prometheus that scrapes the examples.
package scrape
