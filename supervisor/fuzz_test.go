package supervisor

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

// FuzzNew makes any supervisor: New names exactly the bad fields with their values, or it runs.
func FuzzNew(f *testing.F) {
	f.Add(0, int64(0), "a", "b", int64(0), true)
	f.Add(-1, int64(-1), "", "", int64(-1), false)
	f.Add(-7, int64(0), "a", "b", int64(0), true)
	f.Add(0, int64(-1), "a", "b", int64(0), true)
	f.Add(0, int64(0), "a", "", int64(0), true)
	f.Add(0, int64(0), "a", "b", int64(-1), true)
	f.Add(0, int64(0), "a", "b", int64(0), false)
	f.Add(1<<30, int64(math.MaxInt64), "a", "a", int64(math.MaxInt64), true)
	f.Fuzz(func(t *testing.T, intensity int, period int64, first, second string, shutdown int64, runs bool) {
		cfg := Config{Intensity: intensity, Period: time.Duration(period)}
		child := Child{Name: first, Shutdown: time.Duration(shutdown)}
		if runs {
			child.Run = idle
		}
		var want []string
		bad := func(is bool, field string, value any) {
			if is {
				want = append(want, fmt.Sprintf("%s is %v, want ", field, value))
			}
		}
		bad(intensity < 0, "Config.Intensity", intensity)
		bad(period < 0, "Config.Period", time.Duration(period))
		bad(first == "", `child 0 (""): Name`, `""`)
		bad(!runs, fmt.Sprintf("child 0 (%q): Run", first), "nil")
		bad(shutdown < 0, fmt.Sprintf("child 0 (%q): Shutdown", first), time.Duration(shutdown))
		bad(second == "" || second == first, fmt.Sprintf("child 1 (%q): Name", second), fmt.Sprintf("%q", second))

		s, err := New(cfg, child, Child{Name: second, Run: idle})
		if len(want) > 0 {
			if s != nil || !errors.Is(err, ErrConfig) || strings.Count(err.Error(), ErrConfig.Error()) != len(want) {
				t.Fatalf("%v; want %q", err, want)
			}
			for _, w := range want {
				if !strings.Contains(err.Error(), w) {
					t.Fatalf("%v; want %q", err, w)
				}
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		running := s.Start(ctx)
		cancel()
		<-running.Done()
		if err := running.Err(); err != nil {
			t.Fatal(err)
		}
	})
}
