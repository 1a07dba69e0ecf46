package httplimit_test

import (
	"bufio"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/httplimit"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// Three lines: the limit, the key that it holds for, and the handler behind it.
func Example() {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") })

	limiter, _ := engine.New[netip.Addr](engine.Config{Policy: policy.Must(policy.Funnel(2, 1, time.Minute))})
	limit, _ := httplimit.New(limiter, httplimit.ByAddr, httplimit.Options{})
	server := httptest.NewServer(limit.Handler(mux)) // or http.ListenAndServe(":8080", limit.Handler(mux))

	defer limiter.Close()
	defer server.Close()
	for range 3 {
		resp, err := http.Get(server.URL)
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
		fmt.Println(resp.Status)
		fmt.Println(resp.Header.Get("RateLimit-Policy"), resp.Header.Get("Retry-After") != "")
	}
	// Output:
	// 200 OK
	// "default";q=2;w=120 false
	// 200 OK
	// "default";q=2;w=120 false
	// 429 Too Many Requests
	// "default";q=2;w=120 true
}

func show(h http.Handler, fields ...string) {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = "10.0.0.1:4711"
	for i := 0; i < len(fields); i += 2 {
		r.Header.Add(fields[i], fields[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if limit := w.Header().Get("RateLimit"); limit != "" {
		fmt.Println(w.Code, limit)
		return
	}
	fmt.Println(w.Code)
}

// stopped is a clock that keeps the figures of the examples even.
func stopped() policy.Instant { return 1 }

var hello = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") })

// By address, and by API key if the request has it.
func ExampleNewAll() {
	addresses, _ := engine.New[netip.Addr](engine.Config{Policy: policy.Must(policy.Funnel(3, 3, time.Minute)), Clock: stopped})
	keys, _ := engine.New[string](engine.Config{Policy: policy.Must(policy.Funnel(2, 2, time.Minute)), Clock: stopped})
	defer addresses.Close()
	defer keys.Close()
	limit, err := httplimit.NewAll(httplimit.Options{},
		httplimit.Limit[netip.Addr]{Name: "address", Limiter: addresses, Key: httplimit.ByAddr},
		httplimit.Limit[string]{Name: "key", Limiter: keys, Key: httplimit.ByHeader("X-API-Key"), WhenNoKey: limits.Skip},
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	h := limit.Handler(hello)
	show(h)
	show(h, "X-API-Key", "secret")
	show(h, "X-API-Key", "other")
	show(h, "X-API-Key", "secret")
	// Output:
	// 200 "address";r=2;t=20
	// 200 "address";r=1;t=40
	// 200 "address";r=0;t=60
	// 429 "address";r=0;t=20
}

// Behind proxies: their addresses, and the field that they write.
func ExampleNewClientAddr() {
	client, err := httplimit.NewClientAddr(httplimit.AddrConfig{
		Header:  httplimit.XForwardedFor,
		Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = "10.0.0.1:4711"
	// The client sent 6.6.6.6.
	r.Header.Set("X-Forwarded-For", "6.6.6.6, 2001:db8::17:1, 10.0.0.2")
	fmt.Println(client.Addr(r), client.Key(r))
	// The request does not come by way of a proxy.
	r.RemoteAddr = "192.0.2.1:4711"
	fmt.Println(client.Addr(r), client.Key(r))
	// Output:
	// 2001:db8::17:1 2001:db8::
	// 192.0.2.1 192.0.2.1
}

// Only failed log-ins count.
func ExampleOptions_charge() {
	limiter, _ := engine.New[netip.Addr](engine.Config{Policy: policy.Must(policy.Funnel(2, 1, time.Hour)), Clock: stopped})
	defer limiter.Close()
	limit := httplimit.Must(httplimit.New(limiter, httplimit.ByAddr, httplimit.Options{
		Charge: func(_ *http.Request, served httplimit.Served) int64 {
			if served.Status == http.StatusUnauthorized {
				return 1
			}
			return 0
		},
	}))
	login := limit.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Password") != "right" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	for _, password := range []string{"right", "right", "right", "wrong", "guess", "right"} {
		show(login, "Password", password)
	}
	// Output:
	// 200 "default";r=1;t=3600
	// 200 "default";r=1;t=3600
	// 200 "default";r=1;t=3600
	// 401 "default";r=1;t=3600
	// 401 "default";r=0;t=7200
	// 429 "default";r=0;t=3600
}

// A gateway for language models: each API key has requests, tokens, and streams at once. A response that uses up
// the tokens ends with the event that its handler has registered.
func ExampleLimit_gateway() {
	requests, _ := engine.New[string](engine.Config{Policy: policy.Must(policy.Funnel(60, 60, time.Minute))})
	tokens, _ := engine.New[string](engine.Config{Policy: policy.Must(policy.FixedWindow(5, time.Hour))})
	streams, _ := engine.New[string](engine.Config{Policy: policy.Must(policy.InFlight(10, 15*time.Minute))})
	key := httplimit.ByHeader("X-Api-Key")
	limit, _ := httplimit.NewAll(httplimit.Options{},
		httplimit.Limit[string]{Name: "requests", Limiter: requests, Key: key},
		httplimit.Limit[string]{Name: "streams", Limiter: streams, Key: key},
		httplimit.Limit[string]{Name: "tokens", Limiter: tokens, Key: key,
			Stream: func(_ *http.Request, soFar httplimit.Served) int64 { return soFar.Events }},
	)
	server := httptest.NewServer(limit.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		httplimit.LastEvent(r, []byte("data: [used up]\n\n"))
		w.Header().Set("Content-Type", "text/event-stream")
		for _, token := range []string{"a", "rate", "limiter"} {
			if _, err := fmt.Fprintf(w, "data: %s\n\n", token); err != nil {
				// The error is httplimit.ErrUsedUp.
				return
			}
		}
	})))
	defer server.Close()

	for range 3 {
		r, _ := http.NewRequest(http.MethodGet, server.URL, nil)
		r.Header.Set("X-Api-Key", "alice")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(resp.Status)
		for lines := bufio.NewScanner(resp.Body); resp.StatusCode == http.StatusOK && lines.Scan(); {
			if lines.Text() != "" {
				fmt.Println(lines.Text())
			}
		}
		resp.Body.Close()
	}
	// Output:
	// 200 OK
	// data: a
	// data: rate
	// data: limiter
	// 200 OK
	// data: a
	// data: rate
	// data: [used up]
	// 429 Too Many Requests
}
