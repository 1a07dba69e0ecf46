//go:build race

package policy_test

// raceFactor makes large tests smaller under the race detector, which is ten times
// as slow and has little to find in pure functions.
const raceFactor = 10
