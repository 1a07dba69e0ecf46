package cmdqueue_test

import (
	"context"
	"fmt"

	"github.com/ral-limiter/ral/cmdqueue"
)

// A command of a dead receiver comes to the next receiver.
func Example() {
	queue := cmdqueue.New[string](8)
	queue.TrySend("open the door")
	queue.TrySend("close the door")

	receiver := func(clumsy bool) {
		defer func() {
			if r := recover(); r != nil {
				fmt.Println("  dead:", r)
			}
		}()
		for queue.Len() > 0 {
			command, attempt, ok := queue.Receive(context.Background())
			if !ok {
				return
			}
			fmt.Printf("%s, attempt %d\n", command, attempt)
			if clumsy {
				panic("fingers caught")
			}
			queue.Done()
		}
	}
	receiver(true)
	receiver(false)
	queue.Close()
	fmt.Println(queue.TrySend("lock the door"))

	// Output:
	// open the door, attempt 1
	//   dead: fingers caught
	// open the door, attempt 2
	// close the door, attempt 1
	// false
}
