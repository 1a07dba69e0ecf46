package admin

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ral-limiter/ral/cmd/rald/internal/configured"
	"github.com/ral-limiter/ral/cmd/rald/internal/families"
	"github.com/ral-limiter/ral/cmd/rald/internal/redisserver"
	limiters "github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/observe/inspect"
)

// followEvery is the time between two looks without requests, so that charts begin.
const followEvery = 2 * time.Second

// inspection is the page of package inspect. Engines and configured limits change while the server
// runs. A handler has a fixed list, so a new handler replaces it, and goes on with its charts and alarms.
type inspection struct {
	config inspect.Config
	limits *configured.Limits
	// keys has the families of configured limits.
	keys *families.Families
	all  []*families.Families

	mu  sync.Mutex
	now *inspect.Handler
	// shown identifies the list of now.
	shown   string
	stop    chan struct{}
	stopped sync.WaitGroup
}

func newInspection(config Config, all []*families.Families) (*inspection, error) {
	i := &inspection{
		config: inspect.Config{AcceptNone: true, ShowKeys: config.ShowKeys, Tokens: config.Tokens, Logger: config.Log, Health: config.Reloads.Fault},
		limits: config.Limits, keys: config.Keys, all: all, stop: make(chan struct{}),
	}
	if _, err := i.follow(); err != nil {
		return nil, err
	}
	i.stopped.Go(func() {
		ticks := time.NewTicker(followEvery)
		defer ticks.Stop()
		for {
			select {
			case <-i.stop:
				return
			case <-ticks.C:
				// A request is told of an error.
				_, _ = i.follow()
			}
		}
	})
	return i, nil
}

func (i *inspection) follow() (*inspect.Handler, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	list, shown := i.list()
	if i.now != nil && shown == i.shown {
		return i.now, nil
	}
	config := i.config
	config.Before = i.now
	next, err := inspect.New(config, list...)
	if err != nil {
		return nil, err
	}
	if i.now != nil {
		_ = i.now.Close()
	}
	i.now, i.shown = next, shown
	return next, nil
}

// list returns the configured limits by name, and then the engines.
func (i *inspection) list() (list []inspect.AnyLimit, id string) {
	var text strings.Builder
	limits := maps.Collect(i.limits.All())
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		use := limits[name]
		shown := inspect.Limit[string]{Name: name, Limiter: &configuredLimit{use}}
		counts, trial := use.Counts()
		if shares := use.Shares(); shares != nil {
			shown.Limiter, shown.Stats = shares, func() any { return shares.Counts() }
		}
		if counts != nil {
			shown.Stats = func() any { return figuresOf(counts, trial) }
		}
		list = append(list, shown)
		// A family that ended may begin again.
		fmt.Fprintf(&text, "%s\x00%s %p %p\n", name, use.Limit, use.Family, use.Limiter())
	}
	for _, keep := range i.all {
		for family := range keep.All() {
			shown := inspect.Limit[string]{Name: family.Name(), Limiter: family.ByCall()}
			if there, ok := family.(families.InRedis); ok {
				shown.Limiter = there.Fleet()
			}
			if keep == i.keys {
				shown.Format, shown.Parse = redisserver.KeyText, redisserver.ParseKey
			}
			list = append(list, shown)
			text.WriteString(family.Name() + "\n")
		}
	}
	return list, text.String()
}

func (i *inspection) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	now, err := i.follow()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	now.ServeHTTP(w, request)
}

func (i *inspection) close() error {
	close(i.stop)
	i.stopped.Wait()
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.now.Close()
}

// figuresOf returns the figures of a limit for the page.
func figuresOf(n *configured.Counts, trial *limiters.Trial[string]) any {
	all := struct{ Warnings, Passed, WouldRefuse, WouldAdmit uint64 }{Warnings: n.Warnings.Load(), Passed: n.Passed.Load()}
	if trial != nil {
		tried := trial.Stats()
		all.WouldRefuse, all.WouldAdmit = tried.WouldRefuse, tried.WouldAdmit
	}
	return all
}
