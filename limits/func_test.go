package limits_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/httplimit"
	"github.com/ral-limiter/ral/limits"
)

// Promise: A handler can be tested against any answer of a limiter, by a function.
func TestFuncAnswersForALimiter(t *testing.T) {
	var asked []string
	answers := map[string]limits.Answer{"anna": limits.NewAllowance(10, 9), "bert": limits.NewRefusal(10, 3*time.Second)}
	fake := limits.Func[string](func(_ context.Context, key string, n int64) (limits.Answer, error) {
		asked = append(asked, key)
		if key == "carl" {
			return limits.Answer{}, errors.New("away")
		}
		return answers[key], nil
	})
	limit := httplimit.Must(httplimit.New(fake, httplimit.ByHeader("X-User"), httplimit.Options{}))
	h := limit.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	request := func(user string) *httptest.ResponseRecorder {
		r, w := httptest.NewRequest(http.MethodGet, "/", nil), httptest.NewRecorder()
		r.Header.Set("X-User", user)
		h.ServeHTTP(w, r)
		return w
	}
	assert.Equal(t, http.StatusNoContent, request("anna").Code)
	refused := request("bert")
	assert.Equal(t, http.StatusTooManyRequests, refused.Code)
	assert.Equal(t, "3", refused.Header().Get("Retry-After"))
	assert.Equal(t, http.StatusServiceUnavailable, request("carl").Code)
	assert.Equal(t, []string{"anna", "bert", "carl"}, asked)

	grant, err := fake.Hold(t.Context(), limits.Call[string]{Key: "anna", N: 1})
	require.NoError(t, err)
	assert.True(t, grant.Allowed)
	assert.NoError(t, grant.Settle(t.Context(), 0))
	outcome, err := limits.AskAll(t.Context(), 0, limits.NewClaim(fake, limits.Call[string]{Key: "anna", N: 1}), limits.NewClaim(fake, limits.Call[string]{Key: "bert", N: 1}))
	require.NoError(t, err)
	assert.False(t, outcome.Allowed)
	assert.Equal(t, "refused for 3s by claim 1", fmt.Sprint(outcome))
	assert.Equal(t, "allowed", fmt.Sprint(engine.TakeAll()))
	assert.Nil(t, fake.LimitFor("anna"))
}
