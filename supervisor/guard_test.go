package supervisor

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/core/seam"
)

func panicAround(v any) { panic(v) }

func ending(f func() error) error {
	done := make(chan error)
	spawn(seam.Seam{}, f, func(reason error) { done <- reason })
	return <-done
}

// Promise: A child may end by error, panic or Goexit.
func TestSpawnTellsEndsApart(t *testing.T) {
	require.NoError(t, ending(returns))
	require.Equal(t, errBoom, ending(fails))
	require.Equal(t, ErrGoexit, ending(exits))
	require.Equal(t, ErrGoexit, ending(func() error {
		defer func() { _ = recover() }()
		runtime.Goexit()
		return nil
	}))
	require.NoError(t, ending(func() (err error) {
		defer func() { _ = recover() }()
		panic("recovered by the child itself")
	}))

	var p *PanicError
	require.ErrorAs(t, ending(panics), &p)
	require.Equal(t, "boom", p.Value)
	require.EqualError(t, p, "panic: boom")
	require.NoError(t, errors.Unwrap(p))
}

func TestPanicNil(t *testing.T) {
	err := ending(func() error { panic(nil) })
	var p *PanicError
	require.ErrorAs(t, err, &p)
	var none *runtime.PanicNilError
	require.ErrorAs(t, err, &none)
}

func TestPanicWithError(t *testing.T) {
	require.ErrorIs(t, ending(func() error { panic(fmt.Errorf("reading: %w", io.ErrUnexpectedEOF)) }), io.ErrUnexpectedEOF)
	err := ending(func() error { var m map[string]int; m["a"] = 1; return nil })
	var fault runtime.Error
	require.ErrorAs(t, err, &fault)
}

// TestPanicStack: the stack shows the panic's origin.
func TestPanicStack(t *testing.T) {
	var p *PanicError
	require.ErrorAs(t, ending(func() error { panicAround("x"); return nil }), &p)
	require.Contains(t, string(p.Stack), "panicAround")
	require.Contains(t, string(p.Stack), "guard_test.go")
}

func TestGoexitDuringPanic(t *testing.T) {
	err := ending(func() error {
		defer runtime.Goexit()
		panic("first")
	})
	require.Equal(t, ErrGoexit, err)
	err = ending(func() error {
		defer panic("second")
		runtime.Goexit()
		return nil
	})
	var p *PanicError
	require.ErrorAs(t, err, &p)
}
