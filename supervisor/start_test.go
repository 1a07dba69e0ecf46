package supervisor

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

func TestStart(t *testing.T) {
	in(t, func(t *testing.T) {
		s, err := New(Config{}, Child{Name: "a", Run: idle})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		h := s.Start(ctx)
		synctest.Wait()
		require.NoError(t, h.Err())
		require.ErrorIs(t, s.Run(ctx), ErrRunning)
		cancel()
		<-h.Done()
		require.NoError(t, h.Err())

		var none context.Context
		h = s.Start(none)
		<-h.Done()
		require.ErrorIs(t, h.Err(), ErrConfig)
	})
}
