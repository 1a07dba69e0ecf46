package outgoing_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/outgoing"
	"github.com/ral-limiter/ral/policy"
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

// The server admits two requests at once. So the third one waits until a response is closed.
func ExampleConfig_inFlight() {
	var present, highest atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		highest.Store(max(highest.Load(), present.Add(1)))
		time.Sleep(10 * time.Millisecond) // wall: the work of a request
		present.Add(-1)
	}))
	defer server.Close()

	line, err := outgoing.New[string](outgoing.Config{InFlight: policy.Must(policy.InFlight(2, time.Minute))})
	if err != nil {
		panic(err)
	}
	defer line.Close()
	transport, err := outgoing.NewTransport(line, outgoing.ByHost, outgoing.Options{})
	if err != nil {
		panic(err)
	}
	client := &http.Client{Transport: transport}

	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			resp, err := client.Get(server.URL)
			if err == nil {
				resp.Body.Close()
			}
		})
	}
	all.Wait()
	fmt.Println(highest.Load() <= 2)
	// Output: true
}

// An adapter for another protocol waits, sends, and reports the answer.
func ExampleLine_Wait() {
	line, _ := outgoing.New[string](outgoing.Config{})
	defer line.Close()

	turn, err := line.Wait(context.Background(), "mail.example.com")
	if err != nil {
		// The context ended, and nothing was taken.
		return
	}
	// ... send; the answer is to come back in a minute
	turn.Obey(outgoing.Answer{Refused: true, RetryAfter: time.Minute})
	fmt.Println(line.BackoffLeft("mail.example.com") > 30*time.Second)
	// Output: true
}

// A caller with several accounts sends each request by the first that has a turn at once. It drops an
// account whose quota is spent, and goes on with the next.
func ExampleRefusalOf() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("Authorization") {
		case "Bearer secret of busy":
			w.Header().Set("Retry-After", "60")
			w.WriteHeader(http.StatusTooManyRequests)
		case "Bearer secret of spent":
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusTooManyRequests)
			fmt.Fprint(w, `{"error":{"code":"insufficient_quota"}}`)
		}
	}))
	defer server.Close()

	line, err := outgoing.New[string](outgoing.Config{Patience: time.Second})
	if err != nil {
		panic(err)
	}
	defer line.Close()
	type account struct {
		name   string
		client *http.Client
	}
	var accounts []account
	for _, name := range []string{"busy", "spent", "fresh"} {
		transport, err := outgoing.NewTransport(line, func(*http.Request) string { return name }, outgoing.Options{})
		if err != nil {
			panic(err)
		}
		accounts = append(accounts, account{name, &http.Client{Transport: transport}})
	}

	send := func() {
		for _, a := range slices.Clone(accounts) {
			request, _ := http.NewRequest(http.MethodGet, server.URL, nil)
			request.Header.Set("Authorization", "Bearer secret of "+a.name)
			resp, err := a.client.Do(request)
			if err == nil {
				resp.Body.Close()
				err = outgoing.RefusalOf(resp)
			}
			var late *outgoing.TurnError
			var refusal *outgoing.RefusalError
			switch {
			case errors.As(err, &late):
				fmt.Println(a.name, "is held")
			case errors.As(err, &refusal) && refusal.RetryAfter == policy.Never:
				fmt.Println(a.name, "is spent")
				accounts = slices.DeleteFunc(accounts, func(other account) bool { return other == a })
			case errors.As(err, &refusal):
				fmt.Println(a.name, "is refused for", refusal.RetryAfter)
			case err != nil:
				panic(err)
			default:
				fmt.Println(a.name, "is served")
				return
			}
		}
	}
	send()
	send()
	// Output:
	// busy is refused for 1m0s
	// spent is spent
	// fresh is served
	// busy is held
	// fresh is served
}
