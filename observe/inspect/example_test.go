package inspect_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/observe/inspect"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/single"
)

// Mount the handler where operators come and clients do not.
func ExampleNew() {
	limiter, err := engine.New[string](engine.Config{Name: "api", Policy: policy.Must(policy.Funnel(10, 1, time.Hour))})
	if err != nil {
		panic(err)
	}
	defer limiter.Close()
	handler, err := inspect.New(inspect.Config{}, inspect.Limit[string]{Limiter: limiter})
	if err != nil {
		panic(err)
	}
	defer handler.Close()
	admin := http.NewServeMux()
	admin.Handle("/debug/ral/", handler)
	// A browser opens http://.../debug/ral/.
	server := httptest.NewServer(admin)
	defer server.Close()

	answer, err := http.Get(server.URL + "/debug/ral/limits")
	if err != nil {
		panic(err)
	}
	defer answer.Body.Close()
	var page struct {
		Limits []struct{ Name, Policy string }
	}
	if err := json.NewDecoder(answer.Body).Decode(&page); err != nil {
		panic(err)
	}
	fmt.Println(page.Limits)
	// Output: [{api funnel 10, 1/h}]
}

// A program without a server shows the page on this machine alone.
func ExampleHandler_ListenAndServe() {
	handler, err := inspect.New(inspect.Config{}, inspect.Limit[struct{}]{Name: "sign-ups", Limiter: single.MustNew(policy.Funnel(10, 1, time.Second))})
	if err != nil {
		panic(err)
	}
	ended := make(chan error)
	// An empty address is localhost:7725.
	go func() { ended <- handler.ListenAndServe("localhost:0") }()
	if err := handler.Close(); err != nil {
		panic(err)
	}
	fmt.Println(<-ended)
	// Output: http: Server closed
}
