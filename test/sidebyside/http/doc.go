// Package sidebyside tests httplimit with other libraries. A parser of structured fields (RFC 9651)
// reads its header fields. Costs and admissions are compared with httprate and ulule/limiter, in
// memory and on Redis, and a middleware around golang.org/x/time/rate.
//
//	go test -v -run AdmittedSideBySide -bench SideBySide -benchtime 20x ./test/sidebyside/http
//
// Module test requires them, so that users of httplimit do not. The tests run a redis-server.
package sidebyside
