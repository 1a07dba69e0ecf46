//go:build !race && !386

package policy_test

const raceFactor = 1
