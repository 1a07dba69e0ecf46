// Package faults breaks what lies between the limiters of package fleet and their Redis, in
// all ways that toxiproxy knows, and checks what callers see. It has nothing but tests. It
// is a module of its own, so that users of fleet do not take on the proxy.
package faults
