package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/httplimit"
)

// start runs the command and returns where its page is.
func start(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, append(args, "-addr", "localhost:0"), in, io.Discard) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-ended)
	})
	line := make([]byte, 200)
	n, err := out.Read(line)
	require.NoError(t, err)
	found := regexp.MustCompile(`http://\S+/`).Find(line[:n])
	require.NotNil(t, found, "%s", line[:n])
	return string(found)
}

// answer is the answer to a request.
type answer struct {
	status int
	header http.Header
}

// ask sends a request on behalf of a client, as a proxy does.
func ask(t *testing.T, client *http.Client, url, from, key string) answer {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, url, nil)
	require.NoError(t, err)
	r.Header.Set("X-Forwarded-For", "6.6.6.6, "+from)
	if key != "" {
		r.Header.Set("X-API-Key", key)
	}
	resp, err := client.Do(r)
	if !assert.NoError(t, err) {
		return answer{}
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	return answer{resp.StatusCode, resp.Header}
}

// patience allows for slow machines under other load.
const patience = time.Minute

// Many clients send requests as fast as they can over two connections each, until each was
// refused at least once. No client passes more often than its address may, no key more
// often than it may, and no client is refused for the requests of another.
func TestUnderLoad(t *testing.T) {
	url := start(t, "-proxies", "127.0.0.0/8,::1/128")
	const clients = 12 // every third sends the one key that they share
	passed, refused := make([]int64, clients), make([]int64, clients)
	web := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 3 * clients}}
	defer web.CloseIdleConnections()

	began := time.Now()
	var mu sync.Mutex
	hungry := func(c int) bool {
		mu.Lock()
		defer mu.Unlock()
		took := time.Since(began)
		return took < 2*time.Second || refused[c] == 0 && took < patience
	}
	var wg sync.WaitGroup
	for c := range clients {
		for range 2 {
			wg.Go(func() {
				key := ""
				if c%3 == 0 {
					key = "shared"
				}
				for hungry(c) {
					got := ask(t, web, url+"api/hello", fmt.Sprintf("198.51.100.%d", c), key)
					if got.status == 0 {
						return
					}
					mu.Lock()
					switch got.status {
					case http.StatusOK:
						passed[c]++
					case http.StatusTooManyRequests:
						refused[c]++
						assert.NotEmpty(t, got.header.Get("Retry-After"))
					default:
						t.Errorf("status %d", got.status)
					}
					mu.Unlock()
				}
			})
		}
	}
	wg.Wait()
	took := time.Since(began).Seconds()
	shared := int64(0)
	for c := range clients {
		assert.Positive(t, refused[c], "the load was too small")
		if c%3 == 0 {
			shared += passed[c]
			continue
		}
		assert.LessOrEqual(t, float64(passed[c]), 30+3*took, "client %d", c)
		assert.GreaterOrEqual(t, passed[c], int64(30), "client %d", c)
	}
	assert.LessOrEqual(t, float64(shared), 12+took)
	assert.GreaterOrEqual(t, shared, int64(12))
	t.Logf("passed %v, refused %v in %.2f s", passed, refused, took)

	// The counters agree.
	resp, err := web.Get(url + "stats")
	require.NoError(t, err)
	defer resp.Body.Close()
	var stats httplimit.Stats
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&stats))
	for c := range clients {
		stats.Admitted -= uint64(passed[c])
		stats.OverLimit -= uint64(refused[c])
	}
	assert.Zero(t, stats.Admitted)
	assert.Zero(t, stats.OverLimit)
}

// A client that waits for Retry-After is admitted.
func TestWaitingClientIsAdmitted(t *testing.T) {
	t.Parallel()
	url := start(t, "-proxies", "127.0.0.0/8,::1/128") + "api/hello"
	for key, want := range map[string]string{"": `"address";r=0;t=1`, "k": `"key";r=0;t=1`} {
		from := "198.51.100.1"
		if key == "" {
			from = "198.51.100.2"
		}
		got := ask(t, http.DefaultClient, url, from, key)
		for got.status == http.StatusOK {
			got = ask(t, http.DefaultClient, url, from, key)
		}
		assert.Equal(t, http.StatusTooManyRequests, got.status)
		assert.Equal(t, want, got.header.Get("RateLimit"))
		seconds, err := strconv.Atoi(got.header.Get("Retry-After"))
		require.NoError(t, err)
		time.Sleep(time.Duration(seconds) * time.Second)
		assert.Equal(t, 200, ask(t, http.DefaultClient, url, from, key).status)
	}
}

// Without -proxies no field is trusted, and a client has one key.
func TestHeadersMakeNoOtherClient(t *testing.T) {
	t.Parallel()
	url := start(t)
	began := time.Now()
	passed := 0
	for i := range 200 {
		if ask(t, http.DefaultClient, url+"api/hello", fmt.Sprintf("198.51.100.%d", i), "").status == 200 {
			passed++
		}
	}
	assert.GreaterOrEqual(t, passed, 30)
	assert.LessOrEqual(t, float64(passed), 30+3*time.Since(began).Seconds())
	// Looking is not limited, and takes nothing.
	for range 3 {
		assert.Equal(t, 200, ask(t, http.DefaultClient, url+"quota", "198.51.100.1", "").status)
		assert.Equal(t, 200, ask(t, http.DefaultClient, url, "198.51.100.1", "").status)
	}
}

func TestBadFlags(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ flag, value, want string }{
		{"-proxies", "10.0.0.0", "-proxies: "},
		{"-addr", "nowhere:99999999", "99999999"},
		{"-nothing", "", "not defined"},
	} {
		err := run(context.Background(), []string{c.flag, c.value}, io.Discard, io.Discard)
		if assert.Error(t, err) {
			assert.True(t, strings.Contains(err.Error(), c.want), err.Error())
		}
	}
}

// Quotas outlive the server, if it is told where to keep them.
func TestQuotasOutliveTheServer(t *testing.T) {
	folder := t.TempDir()
	serve := func(f func(url string)) {
		t.Run("server", func(t *testing.T) { f(start(t, "-state", folder, "-proxies", "127.0.0.0/8,::1/128")) })
	}
	const client = "198.51.100.1"
	began := time.Now()
	serve(func(url string) {
		for ask(t, http.DefaultClient, url+"api/hello", client, "k").status == http.StatusOK {
		}
	})
	serve(func(url string) {
		passed := 0
		for ask(t, http.DefaultClient, url+"api/hello", client, "k").status == http.StatusOK {
			passed++
		}
		require.LessOrEqual(t, passed, int(time.Since(began)/time.Second)+1, "a second brings back one unit of the key")
	})
}
