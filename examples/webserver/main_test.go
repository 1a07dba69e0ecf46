package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/redisd"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// start runs the command and returns where its page is. Redis has time, however busy the
// machine is, unless the arguments say otherwise.
func start(t *testing.T, args ...string) string {
	t.Helper()
	url, _ := begin(t, args...)
	return url
}

// begin is start that also returns what the command said beforehand about problems.
func begin(t *testing.T, args ...string) (url, problems string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	out, in := io.Pipe()
	ended := make(chan error, 1)
	var said strings.Builder
	go func() {
		ended <- run(ctx, append([]string{"-addr", "localhost:0", "-budget", "1m"}, args...), in, &said)
	}()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-ended)
	})
	line := make([]byte, 200)
	n, err := out.Read(line)
	require.NoError(t, err)
	found := regexp.MustCompile(`http://\S+/`).Find(line[:n])
	require.NotNil(t, found, "%s", line[:n])
	return string(found), said.String()
}

// answer is the answer to a request.
type answer struct {
	status int
	header http.Header
	body   string
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
	return do(t, client, r)
}

func do(t *testing.T, client *http.Client, r *http.Request) answer {
	t.Helper()
	resp, err := client.Do(r)
	if !assert.NoError(t, err) {
		return answer{}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	assert.NoError(t, err)
	return answer{resp.StatusCode, resp.Header, string(body)}
}

// read reads what a URL answers in JSON.
func read[T any](t *testing.T, url, key string) (v T) {
	t.Helper()
	got := ask(t, http.DefaultClient, url, "198.51.100.1", key)
	require.NoError(t, json.Unmarshal([]byte(got.body), &v), got.body)
	return v
}

// behind has the server trust a proxy on this machine.
const behind = "127.0.0.0/8,::1/128"

// setLimit sets a limit of the servers that start from now on, until the test ends. A limit that
// gives nothing back for an hour admits its burst, however long the test takes.
func setLimit(t *testing.T, limit *policy.Policy, text string) {
	t.Helper()
	before := *limit
	*limit = policy.Must(policy.Parse(text))
	t.Cleanup(func() { *limit = before })
}

// Many clients send requests as fast as they can, each over a connection to each server, until
// each was refused at both. An address passes at each server as often as it may there. A key
// passes at both servers together as often as it may. No client is refused for the requests
// of another.
func TestUnderLoad(t *testing.T) {
	setLimit(t, &addressLimit, "funnel 30, 1/h")
	setLimit(t, &keyLimit, "funnel 12, 1/h")
	url := start(t, "-proxies", behind)
	const clients = 12 // every third sends the one key that they share
	type counts struct{ passed, refused int64 }
	var by [servers][clients]counts
	web := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: servers * clients}}
	defer web.CloseIdleConnections()

	var wg sync.WaitGroup
	for n := range servers {
		for c := range clients {
			wg.Go(func() {
				key, of := "", &by[n][c]
				if c%3 == 0 {
					key = "shared"
				}
				for of.passed+of.refused < 200 || of.refused == 0 {
					got := ask(t, web, fmt.Sprintf("%s%d/hello", url, n+1), fmt.Sprintf("198.51.100.%d", c), key)
					switch got.status {
					case http.StatusOK:
						of.passed++
					case http.StatusTooManyRequests:
						of.refused++
					default:
						t.Errorf("status %d", got.status)
						return
					}
				}
			})
		}
	}
	wg.Wait()
	shared, local := int64(0), uint64(0)
	for n := range by {
		// The counters agree.
		s := read[stats](t, fmt.Sprintf("%s%d/stats", url, n+1), "")
		require.NotNil(t, s.Keys, "these tests need redis-server")
		local += s.Keys.Local
		var all counts
		for c, of := range by[n] {
			all.passed += of.passed
			all.refused += of.refused
			if c%3 == 0 {
				shared += of.passed
				continue
			}
			assert.Equal(t, int64(30), of.passed, "client %d", c)
		}
		assert.Equal(t, all, counts{int64(s.Requests.Admitted), int64(s.Requests.OverLimit)})
	}
	assert.Zero(t, local, "otherwise the servers' shares come in addition")
	assert.Equal(t, int64(12), shared)
}

// A client that waits for Retry-After is admitted.
func TestWaitingClientIsAdmitted(t *testing.T) {
	t.Parallel()
	url := start(t, "-proxies", behind) + "1/hello"
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
		time.Sleep(time.Duration(seconds) * time.Second) // wall: the client waits for as long as it was told
		assert.Equal(t, 200, ask(t, http.DefaultClient, url, from, key).status)
	}
}

// Without -proxies no field is trusted, and a client has one key.
func TestHeadersMakeNoOtherClient(t *testing.T) {
	setLimit(t, &addressLimit, "funnel 30, 1/h")
	url := start(t)
	passed := 0
	for i := range 200 {
		if ask(t, http.DefaultClient, url+"1/hello", fmt.Sprintf("198.51.100.%d", i), "").status == 200 {
			passed++
		}
	}
	assert.Equal(t, 30, passed)
	// Looking is not limited, and takes nothing.
	for range 3 {
		assert.Equal(t, 200, ask(t, http.DefaultClient, url+"live", "198.51.100.1", "").status)
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

// Quotas of addresses outlive the server, if it is told where to keep them.
func TestQuotasOutliveTheServer(t *testing.T) {
	setLimit(t, &addressLimit, "funnel 30, 1/h")
	folder := t.TempDir()
	serve := func(f func(url string)) {
		t.Run("server", func(t *testing.T) { f(start(t, "-state", folder)) })
	}
	serve(func(url string) {
		for n := range servers {
			for ask(t, http.DefaultClient, fmt.Sprintf("%s%d/hello", url, n+1), "", "").status == http.StatusOK {
			}
		}
	})
	serve(func(url string) {
		for n := range servers {
			require.Equal(t, http.StatusTooManyRequests, ask(t, http.DefaultClient, fmt.Sprintf("%s%d/hello", url, n+1), "", "").status)
		}
	})
}

// Each request is counted once, by what the limit and the candidate said of it. The candidate
// refuses none.
func TestCandidateIsCountedAndDecidesNothing(t *testing.T) {
	setLimit(t, &addressLimit, "funnel 30, 1/h")
	url := start(t, "-proxies", behind)
	var s limits.TrialStats
	passed, refused := uint64(0), uint64(0)
	// An address that sends 30 requests within 3.6 s uses up the candidate's burst before the
	// limit's. On a machine so slow that it does not, another address tries again. When the
	// address has sent its 30, the candidate admits more.
	for client := 0; s.WouldRefuse == 0 || s.WouldAdmit == 0; {
		if s.WouldRefuse == 0 {
			client++
		}
		for range 40 {
			switch got := ask(t, http.DefaultClient, url+"1/hello", fmt.Sprintf("198.51.100.%d", client), ""); got.status {
			case http.StatusOK:
				passed++
			case http.StatusTooManyRequests:
				refused++
			default:
				t.Fatalf("status %d", got.status)
			}
		}
		s = read[stats](t, url+"1/stats", "").Candidate
		require.Equal(t, passed, s.Admitted+s.WouldRefuse)
		require.Equal(t, refused, s.Refused+s.WouldAdmit)
		require.Zero(t, s.Failed)
	}
	assert.Zero(t, read[stats](t, url+"2/stats", "").Candidate, "the other server has one of its own")
}

// post sends a request that acts.
func post(t *testing.T, url, value string, change func(*http.Request)) answer {
	t.Helper()
	r, err := http.NewRequest(http.MethodPost, url, strings.NewReader("for="+value))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if change != nil {
		change(r)
	}
	return do(t, http.DefaultClient, r)
}

// An address that is blocked is refused at that server for as long as that, and has all of its
// quota when the block is lifted. To the candidate nothing of that is a difference.
func TestBlockAndLift(t *testing.T) {
	t.Parallel()
	url := start(t)
	hello := func(server int) answer {
		return ask(t, http.DefaultClient, fmt.Sprintf("%s%d/hello", url, server), "", "")
	}
	for range 3 {
		require.Equal(t, http.StatusOK, hello(1).status)
	}
	require.Equal(t, http.StatusNoContent, post(t, url+"1/block", "1h", nil).status)
	got := hello(1)
	assert.Equal(t, http.StatusTooManyRequests, got.status)
	after, err := strconv.Atoi(got.header.Get("Retry-After"))
	require.NoError(t, err)
	assert.LessOrEqual(t, after, 3600)
	assert.Greater(t, after, 1800)
	assert.Equal(t, http.StatusOK, hello(2).status, "the other server does not know of it")
	left := read[live](t, url+"live", "").Servers[0].Address
	assert.InDelta(t, 2700, left.Blocked, 900)

	require.Equal(t, http.StatusNoContent, post(t, url+"1/lift", "", nil).status)
	got = hello(1)
	assert.Equal(t, http.StatusOK, got.status)
	assert.Equal(t, `"address";r=29;t=1`, got.header.Get("RateLimit"))
	s := read[live](t, url+"live", "").Servers[0]
	assert.Zero(t, s.Address.Blocked)
	assert.Equal(t, limits.TrialStats{Admitted: 4, Refused: 1}, s.Trial)
	var sum second
	for _, each := range s.Seconds {
		sum.Admitted += each.Admitted
		sum.Blocked += each.Blocked
	}
	assert.Equal(t, second{Admitted: 4, Blocked: 1}, sum)
}

// Only the page itself, on this machine, blocks and lifts.
func TestOthersDoNotBlockOrLift(t *testing.T) {
	t.Parallel()
	url := start(t)
	public := start(t, "-proxies", behind)
	blocked := func() bool { return read[live](t, url+"live", "").Servers[0].Address.Blocked > 0 }
	strangers := map[string]func(*http.Request){
		"another site":               func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") },
		"another port of this host":  func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") },
		"an old browser":             func(r *http.Request) { r.Header.Set("Origin", "http://example.org") },
		"a name that leads here":     func(r *http.Request) { r.Host = "example.org" },
		"the same, of one origin":    func(r *http.Request) { r.Host = "example.org:80"; r.Header.Set("Origin", "http://example.org:80") },
		"a host that begins like it": func(r *http.Request) { r.Host = "localhost.example.org" },
	}
	for name, as := range strangers {
		assert.Equal(t, http.StatusForbidden, post(t, url+"1/block", "1h", as).status, name)
		assert.False(t, blocked(), name)
	}
	require.Equal(t, http.StatusNoContent, post(t, url+"1/block", "1h", func(r *http.Request) {
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}).status)
	for name, as := range strangers {
		assert.Equal(t, http.StatusForbidden, post(t, url+"1/lift", "", as).status, name)
		assert.True(t, blocked(), name)
	}
	for _, path := range []string{"1/block", "2/lift"} {
		assert.Equal(t, http.StatusMethodNotAllowed, ask(t, http.DefaultClient, url+path, "", "").status)
		assert.Equal(t, http.StatusForbidden, post(t, public+path, "1h", func(r *http.Request) {
			r.Header.Set("X-Forwarded-For", "198.51.100.1")
		}).status, "a client elsewhere")
	}
}

// A block wants a time, and says what it accepts.
func TestBadBlocks(t *testing.T) {
	t.Parallel()
	url := start(t)
	for value, want := range map[string]string{"": "invalid duration", "long": `invalid duration "long"`, "-1s": "want 0 to 35040h0m0s", "99999h": "want 0 to 35040h0m0s"} {
		got := post(t, url+"1/block", value, nil)
		assert.Equal(t, http.StatusBadRequest, got.status)
		assert.Contains(t, got.body, want)
	}
	assert.Zero(t, read[live](t, url+"live", "").Servers[0].Address.Blocked)
}

// Without a Redis there is no limit over the fleet, and the command says so. The others hold.
func TestWithoutRedis(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	url, problems := begin(t)
	assert.Contains(t, problems, "there is no redis-server here: install Redis")
	assert.Contains(t, problems, "-redis host:port")
	page := read[live](t, url+"live", "k")
	assert.Equal(t, strings.TrimSpace(problems), "webserver: "+page.Problem)
	assert.Nil(t, page.Servers[0].Key)
	got := ask(t, http.DefaultClient, url+"1/hello", "", "k")
	assert.Equal(t, http.StatusOK, got.status)
	assert.Equal(t, `"address";q=30;w=10`, got.header.Get("RateLimit-Policy"))
	assert.Nil(t, read[stats](t, url+"1/stats", "").Keys)
}

// A Redis that runs is used, by what is in it. When it ends the page says so, and the servers
// answer by themselves.
func TestRedisOfAnother(t *testing.T) {
	redis, err := redisd.Open(redisd.Config{})
	require.NoError(t, err)
	defer redis.Close()
	for i := range 2 { // the second finds what the first left
		t.Run("command", func(t *testing.T) {
			setLimit(t, &keyLimit, "funnel 12, 1/h")
			url := start(t, "-redis", redis.Addr())
			passed := 0
			for ask(t, http.DefaultClient, url+"1/hello", "", "k").status == http.StatusOK {
				passed++
			}
			assert.Equal(t, 12*(1-i), passed)
			page := read[live](t, url+"live", "k")
			assert.Equal(t, redis.Addr(), page.Redis)
			assert.False(t, page.Own)
		})
	}

	url := start(t, "-redis", redis.Addr(), "-budget", "20ms")
	redis.Kill()
	for {
		got := ask(t, http.DefaultClient, url+"1/hello", "", "k").status
		require.Contains(t, []int{http.StatusOK, http.StatusTooManyRequests}, got)
		page := read[live](t, url+"live", "k")
		if strings.HasPrefix(page.Problem, "Redis does not answer") && page.Servers[0].Key.By == "local" {
			break
		}
	}
}

// The history has the seconds of the last minute in order, and no others.
func TestHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h history
		assert.Empty(t, h.last())
		began := time.Now().Unix()
		for i := range int64(100) {
			for range i%2 + 1 {
				h.add(func(now *second) { now.Admitted++ })
			}
			all := h.last()
			require.Len(t, all, int(min(i+1, 60)))
			for j, s := range all {
				at := began + i - int64(len(all)-1-j)
				require.Equal(t, second{At: at, Admitted: int((at-began)%2) + 1}, s)
			}
			time.Sleep(time.Second)
		}
		time.Sleep(58 * time.Second)
		assert.Len(t, h.last(), 1)
		h.differs(netip.Addr{}, 1, limits.Answer{Decision: policy.Decision{Allowed: true}}, limits.Answer{})
		h.differs(netip.Addr{}, 1, limits.Answer{}, limits.Answer{})
		h.differs(netip.Addr{}, 1, limits.Answer{}, limits.Answer{})
		all := h.last()
		assert.Equal(t, second{At: time.Now().Unix(), WouldRefuse: 1, WouldAdmit: 2}, all[len(all)-1])
		time.Sleep(time.Hour)
		assert.Empty(t, h.last())
	})
}
