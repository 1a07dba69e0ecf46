// Package admin serves operators over HTTP: /metrics for Prometheus, package inspect's page at
// /debug/ral/, /debug/pprof/ and /healthz. It reads existing figures of doors and engines; no
// client's request waits for it. Start reading at New. guard.go compares tokens, inspection.go
// keeps the page up to date, and metrics.go has the metrics.
package admin
