package supervisor_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ral-limiter/ral/supervisor"
)

// A worker that fails twice is back at once, and a shutdown is not an error.
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

// New names every field that it does not accept.
func ExampleNew() {
	_, err := supervisor.New(supervisor.Config{Intensity: -1}, supervisor.Child{Name: "worker"})
	fmt.Println(err)
	// Output:
	// supervisor: invalid configuration: Config.Intensity is -1, want 0 (no restart permitted) or more
	// supervisor: invalid configuration: child 0 ("worker"): Run is nil, want a function
}

// When restarts do not help, Run ends, and its error leads to the cause.
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

// The hook sees what happens, in order. Here the writer's failure also restarts
// the reader, which was started after it.
func ExampleConfig_onEvent() {
	fail := make(chan error)
	up := make(chan struct{}, 3)
	s, _ := supervisor.New(supervisor.Config{
		Name:      "db",
		Strategy:  supervisor.RestForOne,
		Intensity: 1,
		OnEvent:   func(e supervisor.Event) { fmt.Println(e) },
	}, supervisor.Child{
		Name: "writer",
		Run: func(ctx context.Context) error {
			select {
			case err := <-fail:
				return err
			case <-ctx.Done():
				return nil
			}
		},
	}, supervisor.Child{
		Name: "reader",
		Run: func(ctx context.Context) error {
			up <- struct{}{}
			<-ctx.Done()
			return nil
		},
	})
	ctx, shutdown := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	<-up
	fail <- errors.New("checksum mismatch")
	<-up
	shutdown()
	fmt.Println(<-done)
	// Output:
	// db/writer: child started
	// db/reader: child started
	// db/writer: child exited: checksum mismatch
	// db/writer: child restarting: checksum mismatch
	// db/reader: child stopped
	// db/writer: child started
	// db/reader: child started
	// db/reader: child stopped
	// db/writer: child stopped
	// <nil>
}

// Supervisors nest: what the inner one cannot heal restarts it as a whole.
func ExampleSupervisor_AsChild() {
	tries := 0
	ctx, shutdown := context.WithCancel(context.Background())
	inner, _ := supervisor.New(supervisor.Config{Name: "link"}, supervisor.Child{
		Name: "peer",
		Init: func(context.Context) error {
			if tries++; tries < 3 {
				return errors.New("not reachable")
			}
			return nil
		},
		Run: func(ctx context.Context) error {
			fmt.Println("connected at try", tries)
			shutdown()
			<-ctx.Done()
			return nil
		},
	})
	outer, _ := supervisor.New(supervisor.Config{Name: "app", Intensity: 5}, inner.AsChild())
	fmt.Println(outer.Run(ctx))
	// Output:
	// connected at try 3
	// <nil>
}
