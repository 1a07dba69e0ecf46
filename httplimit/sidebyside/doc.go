// Package sidebyside holds what is tested of httplimit with other people's libraries: that
// an independent parser of structured fields (RFC 9651) reads what it writes, and what it
// costs beside httprate and beside a middleware around golang.org/x/time/rate.
//
//	go test -run '^$' -bench . -benchmem ./httplimit/sidebyside
//
// It is a module of its own, so that nobody who uses httplimit takes those on.
package sidebyside
