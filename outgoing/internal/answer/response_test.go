package answer

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/policy"
)

// What a hook leaves 0 is read from the fields.
func TestHookTellsAnAnswer(t *testing.T) {
	const s = time.Second
	fields := []string{"Retry-After: 5", "RateLimit-Policy: 10;w=60", "RateLimit-Limit: 10", "RateLimit-Remaining: 3", "RateLimit-Reset: 7", "X-Should-Retry: true"}
	limit := Answer{Limit: 10, Window: time.Minute, HasRemaining: true, Remaining: 3, Reset: 7 * s, Field: "Ratelimit-Reset", limitField: policyField}
	with := func(change func(a *Answer)) (a Answer) {
		a = limit
		change(&a)
		return a
	}
	asked := &http.Response{StatusCode: http.StatusTooManyRequests, Header: headerOf(fields...)}
	for name, c := range map[string]struct{ hook, want Answer }{
		"served":    {Answer{}, limit},
		"refused":   {Answer{Refused: true}, with(func(a *Answer) { a.Refused, a.RetryAfter, a.Field = true, 5*s, retryAfterField })},
		"its time":  {Answer{Refused: true, RetryAfter: 9 * s, Field: "retry"}, with(func(a *Answer) { a.Refused, a.RetryAfter, a.Field = true, 9*s, "retry" })},
		"no retry":  {Answer{Refused: true, NoRetry: true}, with(func(a *Answer) { a.Refused, a.NoRetry, a.RetryAfter, a.Field = true, true, 5*s, retryAfterField })},
		"final":     {Answer{Refused: true, RetryAfter: policy.Never}, with(func(a *Answer) { a.Refused, a.RetryAfter, a.Field = true, policy.Never, "" })},
		"its rest":  {Answer{HasRemaining: true, Remaining: 1}, Answer{HasRemaining: true, Remaining: 1}},
		"its limit": {Answer{Refused: true, Limit: 1, Window: s}, Answer{Refused: true, RetryAfter: 5 * s, Limit: 1, Window: s, Field: retryAfterField}},
		"its units": {Answer{Units: []Answer{{}}}, Answer{Units: []Answer{{}}}},
	} {
		assert.Equal(t, c.want, Of(asked, func(*http.Response) (Answer, bool) { return c.hook, true }, nil), name)
	}
	unknown := func(*http.Response) (Answer, bool) { return Answer{RetryAfter: policy.Never}, false }
	assert.Equal(t, Of(asked, nil, nil), Of(asked, unknown, nil))
}

// countedBody counts the bytes that are read of it.
type countedBody struct {
	io.Reader
	n int
}

func (c *countedBody) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += n
	return n, err
}

// A byte more than 4 KiB shows that there is more.
func TestPeekIsBounded(t *testing.T) {
	for length, parsed := range map[int]bool{100: true, maxPeek: true, maxPeek + 1: false, 3 * maxPeek: false} {
		text := `{"a":"` + strings.Repeat("b", length-len(`{"a":""}`)) + `"}`
		content := &countedBody{Reader: strings.NewReader(text)}
		resp := &http.Response{Body: io.NopCloser(content), ContentLength: -1}
		var v struct{ A string }
		assert.Equal(t, parsed, PeekJSON(resp, &v), length)
		assert.LessOrEqual(t, content.n, maxPeek+1)
		assert.Equal(t, text, string(must.Get(io.ReadAll(resp.Body))), length)
	}
	for text, parsed := range map[string]bool{`{"a":7,"b":"c"}`: true, `[]`: true, `{"a":`: false, ``: false} {
		var v struct{ A, B string }
		resp := &http.Response{Body: io.NopCloser(strings.NewReader(text))}
		assert.Equal(t, parsed, PeekJSON(resp, &v), text)
		assert.Equal(t, text == `{"a":7,"b":"c"}`, v.B == "c", text)
		assert.Equal(t, text, string(must.Get(io.ReadAll(resp.Body))))
	}
	broken := errors.New("broken")
	resp := &http.Response{Body: io.NopCloser(io.MultiReader(strings.NewReader("{}"), iotest.ErrReader(broken)))}
	assert.False(t, PeekJSON(resp, new(any)))
	_, err := io.ReadAll(resp.Body)
	assert.ErrorIs(t, err, broken)
	assert.False(t, PeekJSON(&http.Response{}, new(any)))
}
