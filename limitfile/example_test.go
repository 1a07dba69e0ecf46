package limitfile_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/limitfile"
	"github.com/ral-limiter/ral/policy"
)

func Example() {
	dir, err := os.MkdirTemp("", "limits")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "limits.conf")
	if err := os.WriteFile(path, []byte("per-user: window 2/h\n    per: user\n"), 0o600); err != nil {
		panic(err)
	}
	file, err := limitfile.Open(path, limitfile.Options{})
	if err != nil {
		panic(err)
	}
	defer file.Close()
	byUser, err := limitfile.Engine[string](file, "per-user")
	if err != nil {
		panic(err)
	}
	for range 3 {
		answer, err := byUser.Admit(context.Background(), "ann", 1)
		fmt.Println(answer.Allowed, err)
	}
	// Output:
	// true <nil>
	// true <nil>
	// false <nil>
}

func ExampleNewSource() {
	customers := map[string]string{"ann": "window 1000/h"}
	asked := make(chan bool, 1)
	source, err := limitfile.NewSource(limitfile.SourceConfig[string]{
		Config: engine.Config{Policy: policy.Must(policy.Parse("window 10/h"))},
		Find: func(context.Context, []string) (map[string]string, error) {
			defer func() { asked <- true }()
			return customers, nil
		},
	})
	if err != nil {
		panic(err)
	}
	defer source.Close()
	fmt.Println(source.Take("ann", 10).Remaining)
	<-asked
	for source.LimitFor("ann").Limit() == 10 {
		time.Sleep(time.Millisecond) // wall: until the answer is in force
	}
	fmt.Println(source.Peek("ann", 0).Remaining)
	// Output:
	// 0
	// 990
}
