package main

import (
	"context"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/testkit/child"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/policy"
)

var address = regexp.MustCompile(`http://[^/]+/`)

// start runs the command until the test ends, and returns its addresses.
func start(t *testing.T, redis, state string) (operators, clients string) {
	ctx, stop := context.WithCancel(context.Background())
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, "localhost:0", "localhost:0", redis, state, in) }()
	t.Cleanup(func() {
		stop()
		assert.NoError(t, <-ended)
	})
	read := func() string {
		line := make([]byte, 200)
		n, err := out.Read(line)
		require.NoError(t, err)
		return address.FindString(string(line[:n]))
	}
	return read(), read()
}

func get(t *testing.T, url string) (*http.Response, string) {
	r := must.Get(http.NewRequest(http.MethodGet, url, nil))
	r.Header.Set("X-API-Key", "k")
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	return answer, string(must.Get(io.ReadAll(answer.Body)))
}

func TestRestartForgivesNothing(t *testing.T) {
	before := addressLimit
	addressLimit = policy.Must(policy.Parse("funnel 30, 1/h")) // gives nothing back meanwhile
	defer func() { addressLimit = before }()
	state := filepath.Join(t.TempDir(), "address.state")
	for _, want := range []int{30, 0} {
		t.Run("server", func(t *testing.T) {
			operators, clients := start(t, "", state)
			passed := 0
			for {
				answer, body := get(t, clients+"hello")
				if answer.StatusCode != http.StatusOK {
					assert.Equal(t, http.StatusTooManyRequests, answer.StatusCode)
					assert.NotEmpty(t, answer.Header.Get("Retry-After"))
					break
				}
				assert.Contains(t, body, "Hello!")
				passed++
			}
			assert.Equal(t, want, passed)
			_, metrics := get(t, operators+"metrics")
			assert.Regexp(t, `(?m)^ral_\w+\{.*limit="address".*\} `, metrics)
			answer, _ := get(t, clients+"debug/ral/")
			assert.Equal(t, http.StatusNotFound, answer.StatusCode, "clients do not see inside")
		})
	}
}

// Operators see both limits.
func TestKeysAreLimitedOverRedis(t *testing.T) {
	redis, err := child.OpenRedis(child.RedisConfig{})
	require.NoError(t, err)
	defer redis.Close()
	operators, clients := start(t, redis.Addr(), "")
	answer, _ := get(t, clients+"hello")
	assert.Equal(t, http.StatusOK, answer.StatusCode)
	assert.Equal(t, `"address";q=30;w=10, "key";q=12;w=12`, answer.Header.Get("RateLimit-Policy"))
	_, shown := get(t, operators+"debug/ral/limits")
	assert.Regexp(t, `"name":\s*"address"`, shown)
	assert.Regexp(t, `"name":\s*"key"`, shown)
}
