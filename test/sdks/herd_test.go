// Package sdks tries the clients that programs of others use against httplimit.
package sdks

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/httplimit"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/policy"
)

const (
	clients  = 5
	calls    = 12 // of each client, at once
	capacity = 2
	pace     = 2 * time.Second
)

var files = []string{"package.json", "herd.mjs"}

// Options.Spread promises room to calls that come back in time. On a busy machine they come late.
func TestHerdWithSDKs(t *testing.T) {
	if testing.Short() {
		t.Skip("npm installs the clients, over the network; make check runs it")
	}
	dir := installed(t)
	for range 3 {
		var with, without herd
		var both sync.WaitGroup
		both.Go(func() { with = run(t, dir, httplimit.Options{Spread: time.Minute}) })
		both.Go(func() { without = run(t, dir, httplimit.Options{}) })
		both.Wait()
		t.Logf("failed of %d: %v with Spread, %v without; refused %v and %v; late by %v and %v at most",
			calls, with.failed, without.failed, with.refused, without.refused, with.late, without.late)
		require.Len(t, with.failed, clients)
		if max(with.late, without.late) > pace/8 {
			continue
		}
		for client, failed := range with.failed {
			assert.Zero(t, failed, client)
			assert.LessOrEqual(t, with.refused[client], calls, "%s: one refusal each", client)
			assert.Equal(t, calls-capacity-2, without.failed[client], "%s: a unit drains until each of two retries", client)
		}
		return
	}
	t.Skip("this machine was too busy: in each run a call came back later than an eighth of the pace")
}

type herd struct {
	failed  map[string]int // calls refused three times
	refused map[string]int // answers
	late    time.Duration  // the longest from the told instant of a call to its next try
}

// run makes the calls, to a server that keeps them by client.
func run(t *testing.T, dir string, options httplimit.Options) herd {
	limiter := must.Get(engine.New[string](engine.Config{Policy: policy.Must(policy.Funnel(capacity, 1, pace))}))
	defer func() { assert.NoError(t, limiter.Close()) }()
	limit := must.Get(httplimit.New(limiter, func(r *http.Request) string { return r.Header.Get("X-Client") }, options))

	var mu sync.Mutex
	h := herd{refused: map[string]int{}}
	turns := map[string]time.Time{} // by call
	limited := limit.Handler(http.HandlerFunc(answer))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		client := r.Header.Get("X-Client")
		call := client + r.Header.Get("X-Call")
		now := time.Now()
		limited.ServeHTTP(w, r)
		mu.Lock()
		defer mu.Unlock()
		if at, ok := turns[call]; ok {
			h.late = max(h.late, now.Sub(at))
		}
		if after := w.Header().Get("Retry-After"); after != "" {
			seconds := must.Get(strconv.Atoi(after))
			turns[call] = now.Add(time.Duration(seconds) * time.Second)
			h.refused[client]++
		}
	}))
	defer server.Close()

	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", filepath.Join(dir, "herd.mjs"), server.URL, strconv.Itoa(calls))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if assert.NoError(t, err, stderr.String()) {
		assert.NoError(t, json.Unmarshal(out, &h.failed))
	}
	return h
}

// answer answers as both APIs do, as far as their clients read it.
func answer(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(`{"id": "1", "object": "chat.completion", "type": "message", "role": "assistant", "choices": [], "content": []}`))
}

// installed returns a folder with the script and its clients, which all clones share.
func installed(t *testing.T) string {
	cache := must.Get(os.UserCacheDir())
	hash := sha256.New()
	for _, name := range files {
		text := must.Get(os.ReadFile(name))
		_, _ = hash.Write(text)
	}
	dir := filepath.Join(cache, fmt.Sprintf("ral-sdks-%x", hash.Sum(nil)[:8]))
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	made, err := os.MkdirTemp(cache, "ral-sdks-") //nolint:usetesting // it stays
	require.NoError(t, err)
	defer func() { assert.NoError(t, os.RemoveAll(made)) }()
	for _, name := range files {
		require.NoError(t, os.WriteFile(filepath.Join(made, name), must.Get(os.ReadFile(name)), 0o600))
	}
	npm := exec.Command("npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts")
	npm.Dir = made
	out, err := npm.CombinedOutput()
	require.NoError(t, err, "npm: %s", out)
	if err := os.Rename(made, dir); err != nil { // another process may have done so
		must.Get(os.Stat(dir))
	}
	return dir
}
