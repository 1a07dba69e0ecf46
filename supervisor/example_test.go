package supervisor_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ral-limiter/ral/supervisor"
)

// A worker that fails is back at once. A shutdown is no error.
func Example() {
	ctx, shutdown := context.WithCancel(context.Background())
	fails := true
	worker := func(ctx context.Context) error {
		if fails {
			fails = false
			return errors.New("lost the connection")
		}
		shutdown()
		<-ctx.Done()
		return nil
	}
	s, err := supervisor.New(supervisor.Config{
		Name:      "app",
		Intensity: 3,
		Period:    time.Second,
		OnEvent:   func(e supervisor.Event) { fmt.Println(e) },
	}, supervisor.Child{Name: "worker", Run: worker})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(s.Run(ctx), s.Restarts())
	// Output:
	// app/worker: child started
	// app/worker: child exited: lost the connection
	// app/worker: child restarting: lost the connection
	// app/worker: child started
	// app/worker: child stopped
	// <nil> 1
}
