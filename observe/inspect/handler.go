package inspect

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"path"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/ral-limiter/ral/internal/adapter/pagejson"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/single"
	"github.com/ral-limiter/ral/supervisor"
)

// Config configures a Handler. The zero Config shows keys as hashes and permits no changes.
type Config struct {
	// ShowKeys shows keys instead of hashes in answers. A search is always by the key itself.
	ShowKeys bool

	// Tokens permits changes: a token for each operator's name, of 16 to 256 printable characters
	// without spaces. The names are for the log: give each operator a different token.
	Tokens map[string]string

	// Hosts are this server's host names, without ports. Requests for other names are refused,
	// against DNS rebinding. Addresses are always accepted. By default requests over a loopback
	// address must be for localhost, and those to ListenAndServe for localhost or the host that it
	// listens on. Others may have any name.
	Hosts []string

	// AcceptNone has New accept no limits, for a program that makes a new Handler once it has some.
	AcceptNone bool

	// Health, if not nil, returns what is wrong with the program's configuration, such as limitfile.File.Health. The
	// first line of the error is shown above the limits. It must be safe for concurrent use.
	Health func() error

	// Before, if not nil, is an earlier Handler of the program. The charts and alarms of its limits go on in the
	// new Handler under the same names. Close it after New has returned.
	Before *Handler

	// Logger gets a record of each change made or failed, with the operator and the hash of the
	// key, even with ShowKeys. It also gets requests for changes without a valid token: one a
	// second, after 10 at once. The default is slog.Default.
	Logger *slog.Logger
}

// Handler shows limits over HTTP: see the package. New makes a Handler, which is safe for
// concurrent use.
type Handler struct {
	config Config
	hosts  map[string]bool
	tokens []token
	// secret is for the hashes of the keys.
	secret []byte
	log    *slog.Logger
	// quiet limits the records about wrong tokens.
	quiet *single.Limiter
	// panics limits the records about panics, which wrong tokens must not hide.
	panics *single.Limiter

	limits    []limit
	byName    map[string]limit
	history   *history
	askHealth asker[string]

	stop    context.CancelFunc
	running *supervisor.Handle
	// server is the server of ListenAndServe.
	server *http.Server
}

type token struct {
	operator string
	sum      [sha256.Size]byte
}

const (
	// maxName bounds the bytes of a limit's name.
	maxName  = 64
	minToken = 16
	maxToken = 256
	// maxPage bounds the rows of a list.
	maxPage     = 200
	defaultPage = 20
)

// New returns a handler that shows limits, at least one. The error is a *policy.FieldError that names the field.
// Close the handler when it is no longer used; the limiters stay open.
func New(config Config, limits ...AnyLimit) (*Handler, error) {
	handler := &Handler{
		config: config,
		secret: make([]byte, 32),
		log:    cmp.Or(config.Logger, slog.Default()),
		quiet:  single.MustNew(policy.Funnel(10, 1, time.Second)),
		panics: single.MustNew(policy.Funnel(10, 1, time.Second)),
		byName: map[string]limit{},
	}
	// The read never fails.
	_, _ = rand.Read(handler.secret)
	if err := handler.configure(); err != nil {
		return nil, err
	}
	if len(limits) == 0 && !config.AcceptNone {
		return nil, &policy.FieldError{Of: "inspect.New", Field: "limits", Value: "empty", Want: "1 limit or more for the page to show"}
	}
	for i, some := range limits {
		if err := handler.add(i, some); err != nil {
			return nil, err
		}
	}
	var before *history
	if config.Before != nil {
		before, handler.config.Before = config.Before.history, nil
	}
	handler.history = newHistory(handler.limits, handler.trouble, before)
	children := []supervisor.Child{{Name: "history", Run: handler.history.run}}
	for _, limit := range handler.limits {
		if run := limit.background(); run != nil {
			children = append(children, supervisor.Child{Name: "walks of " + limit.name(), Run: run})
		}
	}
	// A walk that ends its goroutine is followed by a rest of minRest.
	restarts := 3 + len(children)*int(supervisor.DefaultPeriod/minRest)
	keep, err := supervisor.New(supervisor.Config{Name: "inspect", Intensity: restarts, OnEvent: handler.event}, children...)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	handler.stop, handler.running = stop, keep.Start(ctx)
	handler.server = &http.Server{Handler: handler, BaseContext: ofOwnServer, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 64 << 10}
	return handler, nil
}

func (h *Handler) configure() error {
	for _, host := range h.config.Hosts {
		plain := hostOf(host)
		if plain == "" || !strings.EqualFold(plain, strings.TrimSuffix(host, ".")) {
			return &policy.FieldError{Of: "inspect.Config", Field: "Hosts", Value: fmt.Sprintf("%.80q", host), Want: "a host name without a port"}
		}
		if strings.Contains(plain, "*") {
			return &policy.FieldError{Of: "inspect.Config", Field: "Hosts", Value: fmt.Sprintf("%.80q", host), Want: "the name of one host, as a pattern matches none"}
		}
		if h.hosts == nil {
			h.hosts = map[string]bool{}
		}
		h.hosts[plain] = true
	}
	for _, operator := range slices.Sorted(maps.Keys(h.config.Tokens)) {
		secret := h.config.Tokens[operator]
		bad := func(what, want string) error {
			return &policy.FieldError{Of: "inspect.Config", Field: fmt.Sprintf("Tokens[%.40q]", operator), Value: what, Want: want}
		}
		if operator == "" {
			return bad("of no operator", "a name")
		}
		if len(secret) < minToken || len(secret) > maxToken {
			return bad(fmt.Sprintf("%d bytes long", len(secret)), fmt.Sprintf("%d to %d", minToken, maxToken))
		}
		if strings.ContainsFunc(secret, func(char rune) bool { return char <= ' ' || char > '~' }) {
			return bad("not printable", "ASCII characters without spaces")
		}
		sum := sha256.Sum256([]byte(secret))
		for _, other := range h.tokens {
			if other.sum == sum {
				return bad(fmt.Sprintf("that of %.40q", other.operator), "a token of each operator's own, by which changes are logged")
			}
		}
		h.tokens = append(h.tokens, token{operator, sum})
	}
	return nil
}

func (h *Handler) add(i int, some AnyLimit) error {
	bad := func(field string, value any, want string) error {
		return &policy.FieldError{Of: fmt.Sprintf("inspect.Limit, argument %d of New", i+1), Field: field, Value: value, Want: want}
	}
	if some == nil {
		return bad("Limit", "nil", "an inspect.Limit")
	}
	all, err := some.limits(h, bad)
	if err != nil {
		return err
	}
	for _, limit := range all {
		switch name := limit.name(); {
		case name == "" || len(name) > maxName || strings.ContainsFunc(name, func(char rune) bool { return !unicode.IsPrint(char) }):
			return bad("Name", fmt.Sprintf("%.80q", name), fmt.Sprintf("printable text of 1 to %d bytes, here or in engine.Config.Name", maxName))
		case h.byName[name] != nil:
			return bad("Name", fmt.Sprintf("%q", name), "a name that no other limit of the handler has")
		default:
			h.byName[name] = limit
		}
		h.limits = append(h.limits, limit)
	}
	return nil
}

func (h *Handler) event(event supervisor.Event) {
	if event.Err != nil {
		h.log.Error("ral: inspect: a goroutine ended", "goroutine", event.Child, "error", event.Err)
	}
}

func (h *Handler) unwritable(limit string, err error) {
	if h.panics.Allow() {
		h.log.Error("ral: inspect: a key cannot be written", "limit", limit, "error", err)
	}
}

func (h *Handler) trouble(limit string, err error) {
	h.log.Error("ral: inspect: the load of a limit cannot be read", "limit", limit, "error", err)
}

// Close ends the handler's goroutines and the server of ListenAndServe. A mounted handler still
// answers without new points and lists: earlier lists as they were, others with status 503. Close
// may be called more than once. A hanging function of the program, such as Limit.Stats, does not
// delay it.
func (h *Handler) Close() error {
	h.stop()
	for _, limit := range h.limits {
		limit.close()
	}
	<-h.running.Done()
	return h.server.Close()
}

// ListenAndServe serves the page at http://ADDR/ until Close is called, for programs without a
// server. addr is a host and a port; "" is "localhost:7725". Without a host ListenAndServe listens
// on localhost, for this machine alone; "0.0.0.0:7725" is for all. The error is never nil: after
// Close the error is http.ErrServerClosed.
func (h *Handler) ListenAndServe(addr string) error {
	listener, err := Listen(addr)
	if err != nil {
		return err
	}
	return h.Serve(listener)
}

// Serve is ListenAndServe on a given listener, which it closes.
func (h *Handler) Serve(listener net.Listener) error { return h.server.Serve(listener) }

// Listen returns the listener of ListenAndServe, for programs that need the port before they Serve.
// A bad address is a *policy.FieldError.
func Listen(addr string) (net.Listener, error) {
	if addr == "" {
		addr = "localhost:7725"
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, &policy.FieldError{Of: "inspect.ListenAndServe", Field: "addr", Value: fmt.Sprintf("%.80q", addr), Want: "a host and a port, such as \"localhost:7725\""}
	}
	if host == "" {
		host = "localhost"
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, err
	}
	return listener{l, hostOf(host)}, nil
}

//go:embed page
var files embed.FS

type route struct {
	method string
	// page means that this is the page itself, to which other sites may link.
	page  bool
	serve func(h *Handler, w http.ResponseWriter, r *http.Request) error
}

func (r route) allows(method string) bool {
	return method == r.method || r.method == http.MethodGet && method == http.MethodHead
}

// routes are by the last part of the path: the handler may be mounted anywhere.
var routes = map[string]route{
	"":              {method: http.MethodGet, page: true, serve: file("page.html", "text/html; charset=utf-8")},
	"page.css":      {method: http.MethodGet, serve: file("page.css", "text/css; charset=utf-8")},
	"page.js":       {method: http.MethodGet, serve: file("page.js", "text/javascript; charset=utf-8")},
	"uplot.min.js":  {method: http.MethodGet, serve: file("uplot/uPlot.iife.min.js", "text/javascript; charset=utf-8")},
	"uplot.min.css": {method: http.MethodGet, serve: file("uplot/uPlot.min.css", "text/css; charset=utf-8")},
	"icon.svg":      {method: http.MethodGet, serve: file("icon.svg", "image/svg+xml")},
	"limits":        {method: http.MethodGet, serve: (*Handler).overview},
	"keys":          {method: http.MethodGet, serve: (*Handler).list},
	"history":       {method: http.MethodGet, serve: (*Handler).day},
	"key":           {method: http.MethodPost, serve: (*Handler).explain},
	"change":        {method: http.MethodPost, serve: (*Handler).change},
	"token":         {method: http.MethodPost, serve: (*Handler).token},
}

// ServeHTTP serves the page, at a path that ends with a slash, and its JSON beside it:
//
//	GET  limits?since=TICK                     all limits, and their load of late
//	GET  keys?limit=NAME&by=owed&n=20&after=   a list of keys, by=owed or by=refused
//	GET  history?limit=NAME                    the load of the last day
//	POST key                                   explains a key
//	POST change                                changes a key, and explains it then
//	POST token                                 tells whose token permits changes
//
// The last two need the field "Authorization: Bearer TOKEN". Bodies and answers are application/json.
// Package internal/adapter/pagejson documents their fields.
func (h *Handler) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	setHeaders(w.Header())
	route, ok := routes[request.URL.Path[strings.LastIndexByte(request.URL.Path, '/')+1:]]
	if !ok {
		fail(w, http.StatusNotFound, "there is no such page")
		return
	}
	if status, why := h.refusal(request, route); status != 0 {
		if status == http.StatusMethodNotAllowed {
			w.Header().Set("Allow", route.method)
		}
		fail(w, status, why)
		return
	}
	if err := h.serve(route, w, request); err != nil {
		fail(w, statusOf(err), err.Error())
	}
}

// serve serves a route. A panic of the program, such as in Limit.Format or a policy, becomes this
// request's error, before any part of the answer is written.
func (h *Handler) serve(route route, w http.ResponseWriter, request *http.Request) (err error) {
	defer func() {
		switch p := recover(); p {
		case nil:
		case http.ErrAbortHandler:
			panic(p)
		default:
			err = fmt.Errorf("%w: %.200s", errPanic, fmt.Sprint(p))
			if h.panics.Allow() {
				h.log.Error("ral: inspect: a request panicked", "error", err, "stack", string(debug.Stack()))
			}
		}
	}()
	return route.serve(h, w, request)
}

var errPanic = errors.New("a function of the program panicked")

func file(name, kind string) func(*Handler, http.ResponseWriter, *http.Request) error {
	content, err := files.ReadFile(path.Join("page", name))
	if err != nil {
		// The file was embedded.
		panic(err)
	}
	return func(_ *Handler, w http.ResponseWriter, _ *http.Request) error {
		w.Header().Set("Content-Type", kind)
		_, _ = w.Write(content)
		return nil
	}
}

func answer(w http.ResponseWriter, v any) error {
	var body bytes.Buffer
	if err := json.NewEncoder(&body).Encode(v); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	// An error means that the client has left.
	_, _ = w.Write(body.Bytes())
	return nil
}

func fail(w http.ResponseWriter, status int, why string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(pagejson.Fault{Error: why})
}

func statusOf(err error) int {
	var field *policy.FieldError
	switch {
	case errors.Is(err, errTooLarge):
		return http.StatusRequestEntityTooLarge
	case errors.Is(err, errRequest), errors.As(err, &field):
		return http.StatusBadRequest
	case errors.Is(err, errUnknown):
		return http.StatusNotFound
	case errors.Is(err, errVerb):
		return http.StatusConflict
	case errors.Is(err, errToken), errors.Is(err, errWrongToken):
		return http.StatusUnauthorized
	case errors.Is(err, errReadOnly):
		return http.StatusForbidden
	case errors.Is(err, errPanic):
		return http.StatusInternalServerError
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, errHangs):
		return http.StatusGatewayTimeout
	}
	// The limiter is closed, or full, or has no Redis.
	return http.StatusServiceUnavailable
}

var (
	errToken      = errors.New("a change needs a token: Authorization: Bearer TOKEN")
	errWrongToken = errors.New("wrong token: it is none of this server's")
	errReadOnly   = errors.New("keys cannot be changed here: the program has set no tokens")
)

func (h *Handler) overview(w http.ResponseWriter, request *http.Request) error {
	values, err := query(request, "since")
	if err != nil {
		return err
	}
	since, err := strconv.ParseUint(cmp.Or(values.Get("since"), "0"), 10, 64)
	if err != nil {
		return fmt.Errorf("%w: since is %.40q, want a tick", errRequest, values.Get("since"))
	}
	points, refused, tick := h.history.since(since)
	overview := pagejson.Overview{Now: time.Now(), Tick: tick, Every: every.Seconds(), Changes: len(h.tokens) > 0, Hashed: !h.config.ShowKeys, Limits: []pagejson.LimitSummary{}}
	if h.config.Health != nil {
		health, err := h.askHealth.ask("Health", func() string { return errorText(h.config.Health()) })
		overview.Health = plain(firstFault(cmp.Or(errorText(err), health)))
	}
	for i, limit := range h.limits {
		limitSummary := limit.summary()
		limitSummary.Points = points[i]
		limitSummary.Alarms, limitSummary.Usual = alarms(request.Context(), limit, &limitSummary, &refused[i]), refused[i].usual
		overview.Limits = append(overview.Limits, limitSummary)
	}
	return answer(w, overview)
}

// firstFault returns the first line of a text, and the number of the others.
func firstFault(text string) string {
	first, rest, more := strings.Cut(text, "\n")
	if more {
		first += fmt.Sprintf(" (and %d more)", 1+strings.Count(rest, "\n"))
	}
	return first
}

func (h *Handler) list(w http.ResponseWriter, request *http.Request) error {
	values, err := query(request, "limit", "by", "n", "after")
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(cmp.Or(values.Get("n"), strconv.Itoa(defaultPage)))
	if err != nil || n < 1 || n > maxPage {
		return fmt.Errorf("%w: n is %.40q, want 1 to %d", errRequest, values.Get("n"), maxPage)
	}
	limit, err := h.limit(values.Get("limit"))
	if err != nil {
		return err
	}
	page, err := limit.list(request.Context(), values.Get("by"), n, values.Get("after"))
	if err != nil {
		return err
	}
	return answer(w, page)
}

func (h *Handler) day(w http.ResponseWriter, request *http.Request) error {
	values, err := query(request, "limit")
	if err != nil {
		return err
	}
	limit, err := h.limit(values.Get("limit"))
	if err != nil {
		return err
	}
	return answer(w, pagejson.History{Every: (coarse * every).Seconds(), Points: h.history.day(limit.name())})
}

func (h *Handler) explain(w http.ResponseWriter, r *http.Request) error {
	var request pagejson.KeyRequest
	limit, err := h.read(w, r, &request, &request.Limit)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), remoteTimeout)
	defer cancel()
	explanation, err := limit.explain(ctx, request)
	if err != nil {
		return err
	}
	return answer(w, explanation)
}

// remoteTimeout bounds a call of a remote limiter.
const remoteTimeout = 5 * time.Second

// permit returns the operator whose token the request has, or why it may change nothing.
func (h *Handler) permit(w http.ResponseWriter, request *http.Request) (operator string, err error) {
	if len(h.tokens) == 0 {
		return "", errReadOnly
	}
	if operator = h.operator(request); operator != "" {
		return operator, nil
	}
	if h.quiet.Allow() {
		h.log.Warn("ral: inspect: a change was refused: no token, or a wrong one", "remote", request.RemoteAddr)
	}
	w.Header().Set("WWW-Authenticate", `Bearer realm="ral"`)
	if request.Header.Get("Authorization") != "" {
		return "", errWrongToken
	}
	return "", errToken
}

func (h *Handler) token(w http.ResponseWriter, request *http.Request) error {
	operator, err := h.permit(w, request)
	if err != nil {
		return err
	}
	return answer(w, map[string]string{"operator": operator})
}

func (h *Handler) change(w http.ResponseWriter, r *http.Request) error {
	operator, err := h.permit(w, r)
	if err != nil {
		return err
	}
	var request pagejson.ChangeRequest
	limit, err := h.read(w, r, &request, &request.Limit)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), remoteTimeout)
	defer cancel()
	err = errPanic
	if panicked := guarded("the change", func() { err = limit.change(ctx, request) }); panicked != nil {
		err = fmt.Errorf("%w, and the change may have been made: %w", errPanic, panicked)
	}
	record := []any{"operator", operator, "remote", r.RemoteAddr, "do", fmt.Sprintf("%.20s", request.Do), "limit", request.Limit}
	if id, _, idErr := limit.id(request.KeyRequest); idErr == nil {
		// A log outlives the page, so it never has the key itself.
		record = append(record, "id", id)
	}
	switch request.Do {
	case verbCharge:
		record = append(record, "units", request.Units)
	case verbBlock:
		record = append(record, "for", fmt.Sprintf("%.40s", request.For))
	}
	if err != nil {
		h.log.Warn("ral: inspect: a change failed", append(record, "error", err)...)
		return err
	}
	h.log.Info("ral: inspect: a key was changed", record...)
	// The change is made, whatever fails below.
	again, cancelAgain := context.WithTimeout(r.Context(), remoteTimeout)
	defer cancelAgain()
	var explanation pagejson.Explanation
	if panicked := guarded("the explanation", func() { explanation, err = limit.explain(again, request.KeyRequest) }); panicked != nil {
		err = panicked
	}
	if err != nil {
		explanation = pagejson.Explanation{Limit: request.Limit, Binding: -1, Parts: []pagejson.Part{}, Note: "The change was made. The key cannot be explained: " + err.Error()}
		explanation.ID, explanation.Key, _ = limit.id(request.KeyRequest)
		explanation.Words = explanation.Note
	}
	return answer(w, explanation)
}

func (h *Handler) read(w http.ResponseWriter, request *http.Request, to any, name *string) (limit, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, request.Body, maxBody))
	if err == nil {
		err = readStrictly(body, to)
	} else if errors.As(err, new(*http.MaxBytesError)) {
		err = errTooLarge
	}
	if err != nil {
		return nil, fmt.Errorf("%w: the body: %w", errRequest, err)
	}
	return h.limit(*name)
}

func (h *Handler) limit(name string) (limit, error) {
	if limit := h.byName[name]; limit != nil {
		return limit, nil
	}
	return nil, fmt.Errorf("%w: there is no limit %.80q", errUnknown, name)
}

// query returns the parameters of a request, each at most once and no others.
func query(request *http.Request, names ...string) (url.Values, error) {
	q, err := url.ParseQuery(request.URL.RawQuery)
	if err != nil {
		return nil, fmt.Errorf("%w: the query: %w", errRequest, err)
	}
	for name, values := range q {
		if !slices.Contains(names, name) || len(values) > 1 {
			return nil, fmt.Errorf("%w: parameter %.40q is unknown or given twice", errRequest, name)
		}
	}
	return q, nil
}
