package outgoing_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/ral-limiter/ral/outgoing"
)

// Requests wait their turn and obey the server.
func Example() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("RateLimit-Policy", `"default";q=100;w=10`)
		w.Header().Set("RateLimit", `"default";r=97;t=1`)
	}))
	defer server.Close()

	line, err := outgoing.New[string](outgoing.Config{})
	if err != nil {
		panic(err)
	}
	defer line.Close()
	transport, err := outgoing.NewTransport(line, outgoing.ByHost, outgoing.Options{Retries: 3})
	if err != nil {
		panic(err)
	}
	client := &http.Client{Transport: transport}

	request, _ := http.NewRequest(http.MethodGet, server.URL, nil)
	resp, err := client.Do(request)
	if err != nil {
		panic(err)
	}
	resp.Body.Close()
	fmt.Println(resp.Status)
	fmt.Println(line.Limit(outgoing.ByHost(request)))
	// Output:
	// 200 OK
	// window 100/10s
}

// An adapter for another protocol waits, sends, and reports the answer.
func ExampleLine_Wait() {
	line, _ := outgoing.New[string](outgoing.Config{})
	defer line.Close()

	turn, err := line.Wait(context.Background(), "mail.example.com")
	if err != nil {
		return // the context ended: nothing was taken
	}
	// ... send; the answer is to come back in a minute
	turn.Obey(outgoing.Answer{Refused: true, RetryAfter: time.Minute})
	fmt.Println(line.Held("mail.example.com") > 30*time.Second)
	// Output: true
}
