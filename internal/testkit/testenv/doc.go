// Package testenv tells tests how they are run: under the race detector, which slows them and adds
// allocations, and with which seed.
package testenv
