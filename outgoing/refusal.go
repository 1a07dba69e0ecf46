package outgoing

import (
	"context"
	"encoding/json"
	"net/http"
	"time"
)

// Refusal is the default of [Options.Refusal]. It reports whether a response refuses its call. That
// is status 429, or 403, 430, 502, 503 or 529 with Retry-After or its forms in milliseconds.
func Refusal(resp *http.Response) bool {
	switch resp.StatusCode {
	case http.StatusTooManyRequests:
		return true
	case http.StatusForbidden, statusShopify, http.StatusBadGateway, http.StatusServiceUnavailable, statusOverloaded:
		a, _ := read(resp.Header, time.Now(), nil)
		return a.RetryAfter > 0
	}
	return false
}

const (
	statusShopify    = 430 // docs: Shopify API response status and error codes
	statusOverloaded = 529 // docs: Anthropic API errors
)

// GitHub is [Refusal] and status 403 with X-RateLimit-Remaining 0.
func GitHub(resp *http.Response) bool {
	return Refusal(resp) || resp.StatusCode == http.StatusForbidden && first(resp.Header, "X-Ratelimit-Remaining") == "0"
}

// Anthropic is [Refusal] and status 529.
func Anthropic(resp *http.Response) bool {
	return Refusal(resp) || resp.StatusCode == statusOverloaded
}

// Shopify is [Refusal] and status 430.
func Shopify(resp *http.Response) bool {
	return Refusal(resp) || resp.StatusCode == statusShopify
}

const mostSlack = 4 << 10 // bytes of a body that may be an error of Slack

// Slack is [Refusal] and status 200 with the error ratelimited or rate_limited in its JSON. It reads
// up to 8 KiB of the body, for up to a second, and returns them to the body.
func Slack(resp *http.Response) bool {
	if Refusal(resp) {
		return true
	}
	if resp.StatusCode != http.StatusOK || resp.Body == nil || resp.ContentLength > mostSlack {
		return false
	}
	ctx := context.Background()
	if resp.Request != nil {
		ctx = resp.Request.Context()
	}
	b, whole := readAside(ctx, resp.Body, mostSlack)
	resp.Body = b
	if !whole {
		return false
	}
	var content struct {
		OK    *bool  `json:"ok"`
		Error string `json:"error"`
	}
	return json.Unmarshal(b.read.Bytes(), &content) == nil && content.OK != nil && !*content.OK &&
		(content.Error == "ratelimited" || content.Error == "rate_limited")
}
