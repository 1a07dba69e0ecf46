package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// fixtures returns two short runs of the same program on the same machine, with
// two contenders besides Ral, with 1, 2 and 4 processors, and with memory.
func fixtures(t *testing.T) (d, old document) {
	t.Helper()
	d, err := readDocument("testdata/report.json")
	require.NoError(t, err)
	old, err = readDocument("testdata/old.json")
	require.NoError(t, err)
	return d, old
}
