package answer

import (
	"net/http"
	"slices"
)

const (
	// The status is in Shopify's documentation: API response status and error codes.
	statusShopify = 430
	// The status is in Anthropic's documentation: API errors.
	statusOverloaded = 529
)

// GitHub is outgoing.GitHub.
func GitHub(resp *http.Response) (answer Answer, known bool) {
	spent := first(resp.Header, "X-Ratelimit-Remaining") == "0"
	switch {
	case resp.StatusCode == http.StatusForbidden:
		known = spent
	case resp.StatusCode == http.StatusOK && (spent || resp.Header[retryAfterField] != nil):
		var body struct{ Errors []struct{ Type string } }
		known = PeekJSON(resp, &body) && slices.ContainsFunc(body.Errors, func(e struct{ Type string }) bool {
			return e.Type == "RATE_LIMITED" || e.Type == "RATE_LIMIT"
		})
	}
	return Answer{Refused: true}, known
}

// Anthropic is outgoing.Anthropic.
func Anthropic(resp *http.Response) (answer Answer, known bool) {
	return Answer{Refused: true}, resp.StatusCode == statusOverloaded
}

// Shopify is outgoing.Shopify.
func Shopify(resp *http.Response) (answer Answer, known bool) {
	return Answer{Refused: true}, resp.StatusCode == statusShopify
}

// Slack is outgoing.Slack.
func Slack(resp *http.Response) (answer Answer, known bool) {
	var body struct {
		OK    *bool
		Error string
	}
	known = resp.StatusCode == http.StatusOK && PeekJSON(resp, &body) && body.OK != nil && !*body.OK &&
		(body.Error == "ratelimited" || body.Error == "rate_limited")
	return Answer{Refused: true}, known
}
