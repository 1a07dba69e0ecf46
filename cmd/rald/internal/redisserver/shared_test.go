package redisserver

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/cmd/rald/internal/families"
	"github.com/ral-limiter/ral/cmd/rald/internal/redistest"
	"github.com/ral-limiter/ral/fleet"
	"github.com/ral-limiter/ral/internal/testkit/child"
	"github.com/ral-limiter/ral/internal/testkit/testenv"
)

// alike reports whether two replies are equal, except for long times: windows may begin
// differently.
func alike(a, b any) bool {
	switch a := a.(type) {
	case int64:
		b, ok := b.(int64)
		const long = 100_000
		return ok && (a == b || a > long && b > long)
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, alike)
	case map[string]any:
		b, ok := b.(map[string]any)
		return ok && maps.EqualFunc(a, b, alike)
	}
	return a == b
}

// twins returns a client of a server over Redis, and a client of a server whose keys are in engines.
// one returns one of its words, by the seed.
func twins(t *testing.T) (over, in *client, r *child.Redis, seed uint64, one func(words ...string) string) {
	config, r := redistest.Open(t, fleet.FallbackClosed)
	keep, err := families.New(config)
	require.NoError(t, err)
	seed = testenv.Seed(t)
	random := rand.New(rand.NewPCG(seed, 0))
	one = func(words ...string) string { return words[random.IntN(len(words))] }
	return connect(t, Config{Families: keep}).three(), connect(t, Config{}).three(), r, seed, one
}

// explainedAlike compares the sentences about a key's use, and removes what need not be equal: the sentences
// and the source. Redis's log is named differently, and does not tell when units come back.
func explainedAlike(t *testing.T, want, got map[string]any, log bool) {
	require.Equal(t, []any{"process", "exact"}, []any{want["source"], got["source"]})
	use := func(x map[string]any) string { // times may differ a little
		text := x["text"].(string)
		end := strings.Index(text, " A call is ")
		require.Positive(t, end, text)
		return text[:end]
	}
	if log {
		got["text"] = strings.Replace(got["text"].(string), "Log of at most 5 in any 300d.", "At most 5 in any 300d, where a unit counts for up to 9/8 of that.", 1)
		delete(want, "retry_after")
		delete(got, "retry_after")
	}
	require.Equal(t, use(want), use(got))
	for _, name := range []string{"text", "source"} {
		delete(want, name)
		delete(got, name)
	}
}

// In any order. INFO shows an outage.
//
// Promise: Redis and engines answer every deciding command alike.
func TestCommandsOverRedisAreThoseOfAnEngine(t *testing.T) {
	over, in, r, seed, one := twins(t)
	// None drains during the test.
	limit := func() string {
		return one("slow", "login", "funnel_8,_8/300d", "window_6/300d", "window_60/300d", "sliding_7/300d", "at_most_5/300d", "queue_3,_1/100d")
	}
	key := func() string { return one("a", "b", "c") }
	n := func() string { return one("0", "1", "1", "2", "3", "7", "100", "-1", "x") }
	for step := range 500 {
		command := one(
			fmt.Sprintf("RAL.TAKE %s %s", key(), limit()),
			fmt.Sprintf("RAL.TAKE %s %s %s", key(), limit(), n()),
			fmt.Sprintf("RAL.TAKE %s %s %s %s %s %s", key(), limit(), n(), one("d", "e"), limit(), n()),
			fmt.Sprintf("RAL.PEEK %s %s", key(), limit()),
			fmt.Sprintf("RAL.EXPLAIN %s %s", limit(), key()),
			fmt.Sprintf("RAL.REFUND %s %s %s", key(), limit(), n()),
			fmt.Sprintf("RAL.WAIT %s %s %s 1", key(), limit(), n()),
			fmt.Sprintf("RAL.RESET %s %s", key(), one("slow", "login", "window_6/300d")),
			fmt.Sprintf("RAL.CHANGE %s %s %s", key(), limit(), limit()),
			fmt.Sprintf("CL.THROTTLE %s 4 1 8640000 %s", key(), n()),
			fmt.Sprintf("DEL %s %s", key(), key()),
			fmt.Sprintf("EXISTS %s %s", key(), key()),
			fmt.Sprintf("TYPE %s", key()),
		)
		want, got := in.do(command), over.do(command)
		if w, ok := want.(map[string]any); ok && w["text"] != nil {
			explainedAlike(t, w, got.(map[string]any), strings.Contains(command, "at_most"))
		}
		if w, ok := want.(map[string]any); ok && w["keys"] != nil && w["allowed"] == false {
			// The keys that would have taken report their state before giving back.
			delete(w, "keys")
			delete(got.(map[string]any), "keys")
		}
		// DEL knows other families if only one of the two was asked about more.
		if !strings.HasPrefix(command, "DEL") {
			require.True(t, alike(want, got), "seed %d, step %d: %s: %v, and %v in an engine", seed, step, command, got, want)
		}
	}
	for _, command := range []string{"SCAN 0", "DBSIZE"} {
		name, _, _ := strings.Cut(command, " ")
		assert.Equal(t, replyError("ERR "+name+" is not there, as Redis keeps the keys: there, their names begin with ral:test:"), over.do(command))
	}
	assert.Contains(t, over.do("RAL.TAKE a window_5/week_in_UTC"), "in UTC cannot be kept in Redis, want a funnel, queue")

	info := func() []string { return strings.Split(over.do("INFO").(string), "\r\n") }
	assert.Subset(t, info(), []string{"backend:redis", "backend_mode:exact", "backend_outage:closed", "backend_failing:0"})
	r.Kill()
	// The breaker opens.
	for range 4 {
		assert.Equal(t, false, over.do("RAL.TAKE d at_most_5/m").(map[string]any)["allowed"])
	}
	assert.Equal(t, false, over.do("RAL.TAKE d at_most_5/m 1 e at_most_5/m 1").(map[string]any)["allowed"])
	assert.Contains(t, info(), "backend_failing:1")
	assert.Equal(t, replyError("ERR Redis could not be asked: ask this server again later (INFO has the cause)"), over.do("RAL.RESET d at_most_5/m"))
}
