package supervisor

import (
	"fmt"
	"io"
	"runtime"
	"testing"

	"github.com/ral-limiter/ral/internal/core/seam"
	"github.com/stretchr/testify/require"
)

func panicAround(v any) error { panic(v) }

// The reason of a child's end is its error, its panic or ErrGoexit. See TestEveryEndIsRestarted for
// the simple ends.
func TestSpawnTellsEndsApart(t *testing.T) {
	recovers := func() { _ = recover() }
	for name, c := range map[string]struct {
		run      func() error
		reason   error // nil unless it panicked
		panicked any
	}{
		"exits under a recover": {func() error { defer recovers(); return exits() }, ErrGoexit, nil},
		"recovers by itself":    {func() (err error) { defer recovers(); panic("boom") }, nil, nil},
		"panics":                {func() error { return panicAround("boom") }, nil, "boom"},
		"panics with an error":  {func() error { return panicAround(fmt.Errorf("reading: %w", io.ErrUnexpectedEOF)) }, io.ErrUnexpectedEOF, nil},
		"exits during a panic":  {func() error { defer runtime.Goexit(); return panicAround("first") }, ErrGoexit, nil},
		"panics during an exit": {func() error { defer panicAround("second"); return exits() }, nil, "second"}, //nolint:errcheck // it panics
	} {
		t.Run(name, func(t *testing.T) {
			done := make(chan error)
			spawn(seam.Seam{}, c.run, func(reason error) { done <- reason })
			err := <-done
			if c.panicked == nil {
				require.ErrorIs(t, err, c.reason)
				return
			}
			var p *PanicError
			require.ErrorAs(t, err, &p)
			require.Equal(t, c.panicked, p.Value)
			require.EqualError(t, p, fmt.Sprint("panic: ", c.panicked))
			require.Contains(t, string(p.Stack), "panicAround")
		})
	}
}
