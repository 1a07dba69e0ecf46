// Package sidebyside tests httplimit with other libraries: that an independent parser of
// structured fields (RFC 9651) reads its header fields, and its cost beside httprate and
// beside a middleware around golang.org/x/time/rate.
//
//	go test -run '^$' -bench . -benchmem ./httplimit/sidebyside
//
// It is a module of its own, so that users of httplimit do not depend on them.
package sidebyside
