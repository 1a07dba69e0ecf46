package supervisor

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func idle(ctx context.Context) error { <-ctx.Done(); return nil }

func TestDefaults(t *testing.T) {
	s, err := New(Config{}, Child{Name: "a", Run: idle}, Child{Name: "b", Run: idle, Shutdown: time.Hour})
	require.NoError(t, err)
	require.Equal(t, "supervisor", s.cfg.Name)
	require.Zero(t, s.cfg.Intensity)
	require.Equal(t, DefaultPeriod, s.cfg.Period)
	require.Equal(t, DefaultShutdown, s.children[0].Shutdown)
	require.Equal(t, time.Hour, s.children[1].Shutdown)
}

func TestNewCopies(t *testing.T) {
	list := []Child{{Name: "a", Run: idle}}
	s, err := New(Config{}, list...)
	require.NoError(t, err)
	list[0] = Child{}
	require.Equal(t, "a", s.children[0].Name)
	require.Zero(t, list[0].Shutdown)
}
