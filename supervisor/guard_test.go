package supervisor

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"testing"

	"github.com/ral-limiter/ral/internal/core/seam"
	"github.com/stretchr/testify/require"
)

func panicAround(v any) error { panic(v) }

// The reason of a child's end is its error, its panic or ErrGoexit.
func TestSpawnTellsEndsApart(t *testing.T) {
	recovers := func() { _ = recover() }
	for name, c := range map[string]struct {
		run   func() error
		check func(t *testing.T, err error)
	}{
		"returns": {returns, func(t *testing.T, err error) { require.NoError(t, err) }},
		"fails":   {fails, func(t *testing.T, err error) { require.Equal(t, errBoom, err) }},
		"exits":   {exits, func(t *testing.T, err error) { require.Equal(t, ErrGoexit, err) }},
		"exits under a recover": {func() error { defer recovers(); return exits() },
			func(t *testing.T, err error) { require.Equal(t, ErrGoexit, err) }},
		"recovers by itself": {func() (err error) { defer recovers(); panic("boom") },
			func(t *testing.T, err error) { require.NoError(t, err) }},
		"panics": {func() error { return panicAround("boom") }, func(t *testing.T, err error) {
			var p *PanicError
			require.ErrorAs(t, err, &p)
			require.Equal(t, "boom", p.Value)
			require.EqualError(t, p, "panic: boom")
			require.NoError(t, errors.Unwrap(p))
			require.Contains(t, string(p.Stack), "panicAround")
			require.Contains(t, string(p.Stack), "guard_test.go")
		}},
		"panics with nil": {func() error { return panicAround(nil) }, func(t *testing.T, err error) {
			var none *runtime.PanicNilError
			require.ErrorAs(t, err, &none)
		}},
		"panics with an error": {func() error { return panicAround(fmt.Errorf("reading: %w", io.ErrUnexpectedEOF)) },
			func(t *testing.T, err error) { require.ErrorIs(t, err, io.ErrUnexpectedEOF) }},
		"panics by itself": {func() error { var m map[string]int; m["a"] = 1; return nil }, func(t *testing.T, err error) {
			var fault runtime.Error
			require.ErrorAs(t, err, &fault)
		}},
		"exits during a panic": {func() error { defer runtime.Goexit(); return panicAround("first") },
			func(t *testing.T, err error) { require.Equal(t, ErrGoexit, err) }},
		"panics during an exit": {func() error { defer panicAround("second"); return exits() }, func(t *testing.T, err error) { //nolint:errcheck // it panics
			var p *PanicError
			require.ErrorAs(t, err, &p)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			done := make(chan error)
			spawn(seam.Seam{}, c.run, func(reason error) { done <- reason })
			c.check(t, <-done)
		})
	}
}
