//go:build race || 386

package policy_test

// raceFactor makes large tests smaller under the race detector, which is ten times
// as slow and has little to find in pure functions, and on 32 bits, where arithmetic on
// words is several times as slow.
const raceFactor = 10
