package limitfile_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ral-limiter/ral/limitfile"
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
