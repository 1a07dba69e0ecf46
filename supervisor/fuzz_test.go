package supervisor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// FuzzNew makes a supervisor of anything: it is refused with an error that names each
// bad field and its value, and no other, or it starts and stops.
func FuzzNew(f *testing.F) {
	f.Add(0, 0, int64(0), "a", "b", 0, int64(0), true)
	f.Add(3, -1, int64(-1), "", "", 3, int64(-1), false)
	f.Add(2, 1<<30, int64(Forever), "a", "a", 2, int64(Forever), true)
	f.Fuzz(func(t *testing.T, strategy, intensity int, period int64, first, second string, restart int, shutdown int64, runs bool) {
		cfg := Config{Strategy: Strategy(strategy), Intensity: intensity, Period: time.Duration(period)}
		child := Child{Name: first, Restart: Restart(restart), Shutdown: time.Duration(shutdown)}
		if runs {
			child.Run = idle
		}
		var want []string
		bad := func(is bool, field string, value any) {
			if is {
				want = append(want, fmt.Sprintf("%s is %v, want ", field, value))
			}
		}
		bad(strategy < 0 || strategy > 2, "Config.Strategy", strategy)
		bad(intensity < 0, "Config.Intensity", intensity)
		bad(period < 0, "Config.Period", time.Duration(period))
		bad(first == "", `child 0 (""): Name`, `""`)
		bad(!runs, fmt.Sprintf("child 0 (%q): Run", first), "nil")
		bad(restart < 0 || restart > 2, fmt.Sprintf("child 0 (%q): Restart", first), restart)
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
