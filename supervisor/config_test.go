package supervisor

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func idle(ctx context.Context) error { <-ctx.Done(); return nil }

func TestNewRejects(t *testing.T) {
	ok := Child{Name: "a", Run: idle}
	for name, tc := range map[string]struct {
		cfg      Config
		children []Child
		want     []string
	}{
		"intensity": {Config{Intensity: -1}, nil, []string{"Config.Intensity is -1", "0 (no restart permitted)"}},
		"period":    {Config{Period: -time.Second}, nil, []string{"Config.Period is -1s", "positive"}},
		"no name":   {Config{}, []Child{ok, {Run: idle}}, []string{`child 1 (""): Name is ""`, "non-empty"}},
		"same name": {Config{}, []Child{ok, {Name: "b", Run: idle}, ok}, []string{`child 2 ("a"): Name is "a"`, "child 0"}},
		"no Run":    {Config{}, []Child{{Name: "a"}}, []string{`child 0 ("a"): Run is nil`}},
		"shutdown":  {Config{}, []Child{{Name: "a", Run: idle, Shutdown: -1}}, []string{"Shutdown is -1ns", "DefaultShutdown"}},
		"all at once": {Config{Intensity: -7, Period: -1}, []Child{{}},
			[]string{"Intensity is -7", "Period is -1ns", "Name is", "Run is nil"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := New(tc.cfg, tc.children...)
			require.Nil(t, s)
			require.ErrorIs(t, err, ErrConfig)
			for _, part := range tc.want {
				require.ErrorContains(t, err, part)
			}
		})
	}
}

func TestDefaults(t *testing.T) {
	s, err := New(Config{}, Child{Name: "a", Run: idle}, Child{Name: "b", Run: idle, Shutdown: time.Hour})
	require.NoError(t, err)
	require.Equal(t, "supervisor", s.cfg.Name)
	require.Zero(t, s.cfg.Intensity)
	require.Equal(t, DefaultPeriod, s.cfg.Period)
	require.Equal(t, DefaultShutdown, s.children[0].Shutdown)
	require.Equal(t, time.Hour, s.children[1].Shutdown)
}

// TestNewCopies: what the caller does to its slice later does not matter.
func TestNewCopies(t *testing.T) {
	list := []Child{{Name: "a", Run: idle}}
	s, err := New(Config{}, list...)
	require.NoError(t, err)
	list[0] = Child{}
	require.Equal(t, "a", s.children[0].Name)
	require.Zero(t, list[0].Shutdown)
}
