package janitor_test

import (
	"fmt"
	"time"

	"github.com/ral-limiter/ral/janitor"
)

func ExampleEvery() {
	for _, idle := range []time.Duration{time.Nanosecond, 4 * time.Second, 5 * time.Minute} {
		fmt.Println(idle, janitor.Every(idle))
	}
	// Output:
	// 1ns 1ms
	// 4s 250ms
	// 5m0s 1s
}
