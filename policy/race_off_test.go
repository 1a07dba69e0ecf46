//go:build !race

package policy_test

const raceFactor = 1
