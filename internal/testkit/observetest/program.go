// Package observetest has what tests of several observers share: a program with the page of package
// inspect, and the metrics that docs/metrics.md lists.
package observetest

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/observe/inspect"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/single"
)

// Program has limits of 10 units, and a unit comes back each hour: "all", without keys, "api",
// "logins" and "tried".
type Program struct {
	// URL is the page's.
	URL    string
	API    *engine.Engine[string]
	Logins *engine.Engine[string]
	// Trial is "tried", of Logins with a candidate of 1 unit.
	Trial *limits.Trial[string]
}

// Start starts a program that ends with the test.
func Start(t *testing.T, config inspect.Config) Program {
	t.Helper()
	open := func(name string, capacity int64) *engine.Engine[string] {
		limiter, err := engine.New[string](engine.Config{Name: name, Policy: policy.Must(policy.Funnel(capacity, 1, time.Hour))})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, limiter.Close()) })
		return limiter
	}
	program := Program{API: open("api", 10), Logins: open("logins", 10)}
	var err error
	program.Trial, err = limits.NewTrial(limits.TrialConfig[string]{Live: program.Logins, Candidate: open("", 1)})
	require.NoError(t, err)
	config.Logger = slog.New(slog.DiscardHandler)
	handler, err := inspect.New(config,
		inspect.Limit[struct{}]{Name: "all", Limiter: single.MustNew(policy.Funnel(10, 1, time.Hour))},
		inspect.Limit[string]{Limiter: program.API}, inspect.Limit[string]{Limiter: program.Logins}, inspect.Limit[string]{Name: "tried", Limiter: program.Trial})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, handler.Close()) })
	mux := http.NewServeMux()
	mux.Handle("/debug/ral/", handler)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	program.URL = server.URL + "/debug/ral/"
	return program
}

// Load has clients call: "glutton" is refused 300 times, "modest" and "root" owe some units.
func (p Program) Load() {
	p.API.Take("glutton", 10)
	for range 300 {
		p.API.Choke("glutton")
	}
	p.API.Take("modest", 3)
	p.Logins.Take("root", 7)
}
