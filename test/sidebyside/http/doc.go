// Package sidebyside tests httplimit with other libraries: that an independent parser of
// structured fields (RFC 9651) reads its header fields, and what it costs and admits beside
// httprate and ulule/limiter, each in memory and on Redis, and a middleware around
// golang.org/x/time/rate.
//
//	go test -v -run AdmittedSideBySide -bench SideBySide -benchtime 20x ./test/sidebyside/http
//
// They are requirements of module test, so that users of httplimit do not depend on them. The tests
// start a redis-server and end it.
package sidebyside
