// Package scrape tests Ral's metrics in Prometheus: the alert rules in observe/metrics/alerts and
// the dashboard in observe/metrics/grafana, by promtool and by a Prometheus that scrapes the
// examples.
package scrape
