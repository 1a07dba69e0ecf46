package checkserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/cmd/rald/internal/configured"
	"github.com/ral-limiter/ral/cmd/rald/internal/families"
	"github.com/ral-limiter/ral/httplimit"
)

// Config configures a Door.
type Config struct {
	// Families keep the keys, and Limits are the configured limits in the same Families.
	// Rules.AddTo must add the rules' limits to them before the rules. Both are required.
	Families *families.Families
	Limits   *configured.Limits
	// Log is told when a proxy omits what the rules need. The default is slog.Default().
	Log *slog.Logger
}

// Door answers proxies. New makes it. It is safe for concurrent use.
//
// A request for /check is answered with 204 if the original request may pass, and otherwise with
// another status: see Rules. /healthz is answered with 200 while the engines are healthy.
type Door struct {
	config Config
	table  atomic.Pointer[table]
	paths  http.ServeMux
	stats  Stats
	once   once
}

// New returns a Door with rules, or Prepare's error.
func New(config Config, rules *Rules) (*Door, error) {
	if config.Families == nil || config.Limits == nil {
		return nil, errors.New("checkserver: Families or Limits is nil: families.New and configured.New make them")
	}
	if config.Log == nil {
		config.Log = slog.Default()
	}
	door := &Door{config: config}
	door.paths.HandleFunc("/check", door.check)
	door.paths.HandleFunc("GET /healthz", door.health)
	commit, err := door.Prepare(rules)
	if err != nil {
		return nil, err
	}
	commit()
	return door, nil
}

// Prepare returns a function that puts rules in force, all at once. A request keeps the rules at
// its beginning. Keys keep their usage under a limit of the same name and family. The error joins a
// *configfile.Error for each rule at fault.
func (d *Door) Prepare(to *Rules) (commit func(), err error) {
	table, err := newTable(to, d.config.Limits, &d.stats)
	if err != nil {
		return nil, err
	}
	return func() { d.table.Store(table) }, nil
}

// ServeHTTP implements http.Handler.
func (d *Door) ServeHTTP(w http.ResponseWriter, request *http.Request) { d.paths.ServeHTTP(w, request) }

func (d *Door) health(w http.ResponseWriter, _ *http.Request) {
	// Without Redis every server answers checks as configured.
	if _, err := d.config.Families.Health(); err != nil {
		http.Error(w, errors.Unwrap(err).Error(), http.StatusServiceUnavailable)
		return
	}
	_, _ = fmt.Fprintln(w, "ok")
}

func (d *Door) check(w http.ResponseWriter, request *http.Request) {
	if request.ContentLength != 0 {
		// The server would wait for a body that a proxy need not send.
		w.Header().Set("Connection", "close")
	}
	table := d.table.Load()
	original, others, err := table.rules.original(request)
	if err == nil {
		err = table.haveOneRule(original, others)
	}
	id := ""
	if err == nil {
		id, err = table.rules.id(request, original)
	}
	if err != nil {
		d.stats.Undecided.Add(1)
		table.refuse(w, request, err, d.config.Log)
		return
	}
	if id != "" {
		if fields, ok := d.once.find(id); ok {
			maps.Copy(w.Header(), fields)
			pass.ServeHTTP(w, original)
			return
		}
	}
	answer := &refusal{ResponseWriter: w, instead: table.rules.status}
	switch limited := table.serve(answer, original); {
	case !limited:
		d.stats.Unlimited.Add(1)
	case id != "" && answer.status == http.StatusNoContent:
		d.once.add(id, w.Header())
	}
}

type table struct {
	rules *Rules
	// The handlers of routes are of type held.
	routes routes
	// said has the logged texts.
	said sync.Map
}

type held struct {
	http.Handler
	// limited means that the rule has limits.
	limited bool
}

var pass = held{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })}

func newTable(rules *Rules, limits *configured.Limits, stats *Stats) (*table, error) {
	t := &table{rules: rules}
	var faults []error
	for i := range rules.rules {
		rule := &rules.rules[i]
		held, err := rule.handler(limits, rules.spread, stats)
		if err == nil {
			err = t.routes.add(withSlash(rule.match), held)
		}
		if err != nil {
			faults = append(faults, rule.place.Error(err))
		}
	}
	return t, errors.Join(faults...)
}

func (r *rule) handler(limits *configured.Limits, spread time.Duration, stats *Stats) (held, error) {
	if r.unlimited {
		return pass, nil
	}
	var all []httplimit.AnyLimit
	for _, limit := range r.limits {
		limit.Limiter, limit.PolicyFor = limits, limit.policyFor
		limit.Cost = func(*http.Request) int64 { return limit.cost }
		all = append(all, limit.Limit)
	}
	middleware, err := httplimit.NewAll(httplimit.Options{Spread: spread, OnVerdict: stats.count, Inform: r.inform}, all...)
	if err != nil {
		return held{}, err
	}
	limited := middleware.Handler(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if value := request.Header[r.inform]; value != nil && r.inform != "" {
			// The proxy copies the field to the request.
			w.Header()[r.inform] = value
		}
		pass.ServeHTTP(w, request)
	}))
	return held{http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		limited.ServeHTTP(w, request.WithContext(context.WithValue(request.Context(), answerKey{}, w.Header())))
	}), true}, nil
}

// withSlash returns the pattern with a final slash: /login gives /login/{$}. With a single form of
// each path, ServeMux finds the most specific rule, or refuses two if neither is more specific.
func withSlash(pattern string) string {
	for _, end := range [...]string{"/", "{$}", "...}"} {
		if strings.HasSuffix(pattern, end) {
			return pattern
		}
	}
	return pattern + "/{$}"
}

// haveOneRule returns errRule if another reading of the path has another rule.
func (t *table) haveOneRule(request *http.Request, others []*url.URL) error {
	if len(others) == 0 {
		return nil
	}
	_, pattern := t.routes.find(request)
	for _, address := range others {
		other := *request
		other.URL = address
		if _, is := t.routes.find(&other); is != pattern {
			return errRule
		}
	}
	return nil
}

// serve applies a request's rule, and reports whether it has limits. Without a rule it passes.
func (t *table) serve(w http.ResponseWriter, request *http.Request) (limited bool) {
	if t.rules.allows(request) {
		pass.ServeHTTP(w, request)
		return false
	}
	mux, _ := t.routes.find(request)
	handler, _ := mux.Handler(request)
	if h, ok := handler.(held); ok {
		// ServeHTTP also finds the wildcards.
		mux.ServeHTTP(w, request)
		return h.limited
	}
	pass.ServeHTTP(w, request)
	return false
}

// refuse answers a request that cannot be restored. It logs once for the rules in force unless a
// client caused it, or if the configuration can mend it.
func (t *table) refuse(w http.ResponseWriter, request *http.Request, err error, log *slog.Logger) {
	status := http.StatusBadRequest
	switch {
	case errors.Is(err, errPeer):
		status = http.StatusForbidden
	case errors.Is(err, errProxy):
		status = http.StatusInternalServerError
	}
	if status != http.StatusBadRequest || errors.Is(err, errRule) {
		if _, said := t.said.LoadOrStore(err.Error(), true); !said {
			log.Error("a request of the HTTP check cannot be decided", "error", err, "file", t.rules.file, "remote", request.RemoteAddr)
		}
	}
	http.Error(&refusal{ResponseWriter: w, instead: t.rules.status}, err.Error(), status)
}

// refusal answers refusals that a client causes with another status, if configured.
type refusal struct {
	http.ResponseWriter
	// instead is 0 for none.
	instead int
	// status is the answer's.
	status int
}

func (w *refusal) WriteHeader(status int) {
	if w.instead != 0 && status >= 400 && status < 500 {
		status = w.instead
	}
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}
