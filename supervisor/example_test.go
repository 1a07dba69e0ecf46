package supervisor_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ral-limiter/ral/supervisor"
)

// A worker that fails twice is back at once. A shutdown is no error.
func Example() {
	ctx, shutdown := context.WithCancel(context.Background())
	attempt := 0
	worker := func(ctx context.Context) error {
		attempt++
		switch attempt {
		case 1:
			return errors.New("lost the connection")
		case 2:
			panic("index out of range")
		}
		fmt.Println("attempt", attempt, "works")
		shutdown()
		<-ctx.Done()
		return nil
	}
	s, err := supervisor.New(
		supervisor.Config{Name: "app", Intensity: 3, Period: time.Second},
		supervisor.Child{Name: "worker", Run: worker},
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(s.Run(ctx), s.Restarts())
	// Output:
	// attempt 3 works
	// <nil> 2
}

func ExampleNew() {
	_, err := supervisor.New(supervisor.Config{Intensity: -1}, supervisor.Child{Name: "worker"})
	fmt.Println(err)
	// Output:
	// supervisor: invalid configuration: Config.Intensity is -1, want 0 (no restart permitted) or more
	// supervisor: invalid configuration: child 0 ("worker"): Run is nil, want a function
}

// When restarts do not help, Run ends with an error that wraps the cause.
func ExampleSupervisor_Run_escalation() {
	errDisk := errors.New("disk is full")
	s, _ := supervisor.New(supervisor.Config{Name: "store", Intensity: 2}, supervisor.Child{
		Name: "log",
		Run:  func(context.Context) error { return errDisk },
	})
	err := s.Run(context.Background())
	fmt.Println(err)
	fmt.Println(errors.Is(err, supervisor.ErrIntensity), errors.Is(err, errDisk))
	// Output:
	// store: restart intensity exceeded: more than 2 within 5s; last: child "log": disk is full
	// true true
}

func ExampleConfig_onEvent() {
	ctx, shutdown := context.WithCancel(context.Background())
	fails := true
	s, _ := supervisor.New(supervisor.Config{
		Name:      "db",
		Intensity: 1,
		OnEvent:   func(e supervisor.Event) { fmt.Println(e) },
	}, supervisor.Child{
		Name: "writer",
		Run: func(ctx context.Context) error {
			if fails {
				fails = false
				return errors.New("checksum mismatch")
			}
			shutdown()
			<-ctx.Done()
			return nil
		},
	})
	fmt.Println(s.Run(ctx))
	// Output:
	// db/writer: child started
	// db/writer: child exited: checksum mismatch
	// db/writer: child restarting: checksum mismatch
	// db/writer: child started
	// db/writer: child stopped
	// <nil>
}
