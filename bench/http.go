package bench

import (
	"errors"
	"net/http"
	"net/url"

	"github.com/ral-limiter/ral/httplimit"
)

const HTTPWorkload = "http"

// ralHTTP returns package httplimit as contenders: a handler under one limit and under two, without
// and with RateLimit fields. Each has one caller.
func ralHTTP() (all []Contender) {
	for _, fields := range []struct {
		name string
		set  httplimit.HeaderSet
	}{{"", httplimit.NoHeaders}, {" with fields", httplimit.RateLimitHeaders}} {
		for limits, name := range []string{"one limit", "two limits"} {
			open := func(setup Setup) (Limiter, error) { return newHTTP(setup, limits+1, fields.set) }
			all = append(all, ralCall(name+fields.name, "a handler of httplimit, "+name+fields.name, open, HTTPWorkload))
		}
	}
	return all
}

func newHTTP(setup Setup, limits int, set httplimit.HeaderSet) (limiter Limiter, err error) {
	var all []httplimit.AnyLimit
	limiter.Free = func() error { return nil }
	for _, name := range []string{"first", "second"}[:limits] {
		e, err := newEngine(setup, funnel)
		if err != nil {
			return limiter, errors.Join(err, limiter.Free())
		}
		free := limiter.Free
		limiter.Free = func() error { return errors.Join(e.Close(), free()) }
		all = append(all, httplimit.Limit[string]{Name: name, Limiter: e, Key: func(request *http.Request) string { return request.Host }})
	}
	middleware, err := httplimit.NewAll(httplimit.Options{Headers: set}, all...)
	if err != nil {
		return limiter, errors.Join(err, limiter.Free())
	}
	h := &handled{request: &http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/"}, Header: http.Header{}}, fields: http.Header{}}
	h.handler = middleware.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { h.passed = true }))
	limiter.Ask = func(keys []string) int {
		return AskEach(keys, func(key string) bool { return h.choke(key) })
	}
	return limiter, nil
}

// handled asks a handler, for a single caller. It is the handler's http.ResponseWriter.
type handled struct {
	handler http.Handler
	request *http.Request
	fields  http.Header
	passed  bool
}

func (h *handled) choke(key string) bool {
	clear(h.fields)
	h.request.Host, h.passed = key, false
	h.handler.ServeHTTP(h, h.request)
	return h.passed
}

func (h *handled) Header() http.Header               { return h.fields }
func (h *handled) Write(content []byte) (int, error) { return len(content), nil }
func (h *handled) WriteHeader(int)                   {}
