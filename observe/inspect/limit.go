package inspect

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"reflect"
	"sync"
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/adapter/pagejson"
	"github.com/ral-limiter/ral/internal/core/penalty"
	"github.com/ral-limiter/ral/internal/core/shape"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/single"
)

// Limit is a limiter that the handler shows. Limiter is required.
type Limit[K comparable] struct {
	// Name tells limits of a handler apart: printable text of at most 64 bytes. The default is
	// engine.Config.Name; other limiters need it. The limits of a Tiered are called "name",
	// "name.2", "name.3" and so on, as in metrics. A change affects the key under all limits of the
	// Tiered.
	Name string
	// Limiter is an *engine.Engine, an *engine.Tiered, an *engine.Shares, a *single.Limiter, a *fleet.Limiter
	// or any other limits.Limiter. The first two have lists of keys, and shares a bar of up to 1,000
	// tenants. The handler also uses these methods
	// of others, if present:
	//
	//	Health() error
	//	Reset(ctx context.Context, key K) (bool, error)
	//	Charge(ctx context.Context, key K, n int64) error
	//	Block(ctx context.Context, key K, d time.Duration) error
	//	Blocked(ctx context.Context, key K) (time.Duration, error)
	//
	// A *limits.Trial shows and changes its live limiter, with the figures of the trial.
	Limiter limits.Limiter[K]

	// Format returns the text of a key, Parse the key of a text. Both must be safe for concurrent
	// use, and different keys need different texts. There is a default for strings, integers,
	// bools, types derived from these, and types that implement encoding.TextMarshaler and
	// encoding.TextUnmarshaler. The default is the key itself, or quoted as in Go if it has
	// characters that do not print. Other keys require both. Parse may also make keys of text that
	// operators know, such as by httplimit.ByHeader.
	Format func(key K) string
	Parse  func(text string) (K, error)

	// Stats returns a struct of counters; its exported fields are shown, and Admitted and Refused
	// make the chart. The default is an engine's Stats. For a fleet, return the limiter's:
	//
	//	Stats: func() any { return limiter.Stats() }
	Stats func() any
}

// AnyLimit is a [Limit] of any type of key.
type AnyLimit interface {
	// limits returns the Limit, or those in a Tiered.
	limits(h *Handler, bad fieldFault) ([]limit, error)
}

type fieldFault = func(field string, value any, want string) error

// limit is a Limit with the type of its keys hidden, since a page shows limits with keys of different types.
type limit interface {
	name() string
	summary() pagejson.LimitSummary
	// load fails if a function of the program panics or hangs.
	load() (load, error)
	list(ctx context.Context, by string, n int, after string) (pagejson.List, error)
	explain(ctx context.Context, key pagejson.KeyRequest) (pagejson.Explanation, error)
	// change returns an error only about the change itself.
	change(ctx context.Context, change pagejson.ChangeRequest) error
	// close ends the lists: see Handler.Close.
	close()
	// background returns a function to run as long as the handler, or nil.
	background() func(context.Context) error
	// id returns the ID of a requested key. It returns the text only if keys are shown.
	id(key pagejson.KeyRequest) (id, text string, err error)
}

type load struct {
	admitted, refused, used float64
	keys                    int
}

var (
	// errRequest is answered with 400.
	errRequest = errors.New("bad request")
	// errTooLarge is answered with 413.
	errTooLarge = fmt.Errorf("it is too large: up to %d KiB are accepted, with the key in it", maxBody>>10)
	// errUnknown is answered with 404.
	errUnknown = errors.New("unknown")
	// errVerb says that the limiter does not offer the verb, and is answered with 409.
	errVerb = errors.New("not available")
)

// keyed implements limit for keys of type K.
type keyed[K comparable] struct {
	called string
	// limiter explains keys.
	limiter limits.Limiter[K]
	// trials are the trials around live, the outermost first.
	trials []*limits.Trial[K]
	// live is the limiter inside the trials, and methods are the optional methods of live.
	live limits.Limiter[K]
	methods[K]
	// engine is for lists and counters, or nil.
	engine *engine.Engine[K]
	// walks goes through the keys of engine. It is nil without an engine.
	walks *walks[K]
	text  textForm[K]
	// counts is nil if there are none.
	counts func() any
	secret []byte
	// open means that keys are shown.
	open bool

	// unwritable is called when Format panics.
	unwritable func(limit string, err error)

	askLimit  asker[policy.Policy]
	askHealth asker[string]
	askStats  asker[any]
	askUsed   asker[float64]
	askTrials asker[[]pagejson.TrialSummary]

	mu    sync.Mutex
	shown shown[K]
}

func (l Limit[K]) limits(handler *Handler, bad fieldFault) ([]limit, error) {
	if shape.IsNil(l.Limiter) {
		return nil, bad("Limiter", "nil", "a limiter, such as an *engine.Engine")
	}
	form, ok := textOf[K]()
	if l.Format != nil {
		form.format = l.Format
	}
	if l.Parse != nil {
		form.parse = l.Parse
	}
	if !ok && (l.Format == nil || l.Parse == nil) {
		return nil, bad("Format, Parse", "nil", fmt.Sprintf("both, for keys of type %v", reflect.TypeFor[K]()))
	}
	live, trials := trialsOf(l.Limiter)
	show := func(name string, limiter *engine.Engine[K]) *keyed[K] {
		counts := l.Stats
		if limiter != nil && counts == nil {
			counts = func() any { return limiter.Stats() }
		}
		if shares, ok := any(live).(tenantTeller[K]); ok && counts == nil {
			counts = func() any {
				stats := shares.Stats()
				return struct {
					engine.SharesStats
					Admitted uint64 // for the chart
				}{stats, stats.Guaranteed + stats.Borrowed}
			}
		}
		shown := &keyed[K]{
			called: name, limiter: l.Limiter, trials: trials, live: live, methods: methodsOf(live), engine: limiter,
			text: form, counts: counts, secret: handler.secret, open: handler.config.ShowKeys, unwritable: handler.unwritable,
		}
		if limiter != nil {
			shown.walks = newWalks(limiter)
		}
		return shown
	}
	switch limiter := any(live).(type) {
	case *engine.Engine[K]:
		return []limit{show(cmp.Or(l.Name, limiter.Stats().Name), limiter)}, nil
	case *engine.Tiered[K]:
		var all []limit
		for i, e := range limiter.Engines() {
			name := cmp.Or(l.Name, e.Stats().Name)
			if name != "" && i > 0 {
				name = fmt.Sprintf("%s.%d", name, i+1)
			}
			all = append(all, show(name, e))
		}
		return all, nil
	}
	return []limit{show(l.Name, nil)}, nil
}

// trialsOf returns the deciding limiter and the trials around it, the outermost first.
func trialsOf[K comparable](limiter limits.Limiter[K]) (live limits.Limiter[K], trials []*limits.Trial[K]) {
	for {
		trial, ok := limiter.(*limits.Trial[K])
		if !ok {
			return limiter, trials
		}
		trials, limiter = append(trials, trial), trial.Live()
	}
}

func (l *keyed[K]) background() func(context.Context) error {
	if l.walks == nil {
		return nil
	}
	return func(ctx context.Context) error {
		l.walks.run(ctx)
		return nil
	}
}

func (l *keyed[K]) name() string { return l.called }

// guarded calls a function of the program, such as Limit.Stats, and returns its panic.
func guarded(what string, function func()) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s: panic: %.200s", what, fmt.Sprint(p))
		}
	}()
	function()
	return nil
}

// limitOf returns the limit of unknown keys, or nil. For limiters other than engines it returns the
// limit of the zero key.
func limitOf[K comparable](limiter limits.Limiter[K]) policy.Policy {
	limiter, _ = trialsOf(limiter)
	if e, ok := limiter.(*engine.Engine[K]); ok {
		return e.Limit()
	}
	var none K
	return limiter.LimitFor(none)
}

func (l *keyed[K]) keyless() bool { return reflect.TypeFor[K]() == reflect.TypeFor[struct{}]() }

func (l *keyed[K]) summary() pagejson.LimitSummary {
	limitSummary := pagejson.LimitSummary{Name: l.called, Lists: l.engine != nil, Keyless: l.keyless(), Verbs: l.verbs(), Figures: map[string]any{}}
	limiter := l.live
	if l.engine != nil {
		limiter = l.engine
	}
	limit, limitErr := l.askLimit.ask("the limit", func() policy.Policy { return limitOf(limiter) })
	if limit != nil {
		limitSummary.Policy, limitSummary.Words, limitSummary.Units = limit.String(), policy.Describe(limit), limit.Limit()
	}
	var healthErr, statsErr, trialsErr error
	if healthy, ok := limiter.(interface{ Health() error }); ok {
		limitSummary.Health, healthErr = l.askHealth.ask("Health", func() string { return errorText(healthy.Health()) })
	}
	if l.counts != nil {
		var counts any
		if counts, statsErr = l.askStats.ask("Stats", l.counts); statsErr == nil {
			statsErr = guarded("Stats", func() { limitSummary.Figures = figures(counts) })
		}
	}
	if l.engine != nil {
		limitSummary.Use = keysByUse(l.engine.Stats().KeysByUse)
	}
	if shares, ok := any(l.live).(tenantTeller[K]); ok {
		for _, t := range shares.Tenants(math.MaxInt) {
			id, text := l.show(t.Tenant)
			limitSummary.Tenants = append(limitSummary.Tenants, pagejson.Tenant{ID: id, Key: text, Used: t.Used, Guarantee: t.Guarantee, Borrowed: t.Borrowed, Refused: t.Refused})
		}
	}
	if len(l.trials) > 0 {
		limitSummary.Trials, trialsErr = l.askTrials.ask("the candidate", func() (all []pagejson.TrialSummary) {
			for _, t := range l.trials {
				all = append(all, trialSummary(t))
			}
			return all
		})
	}
	limitSummary.Trouble = errorText(errors.Join(limitErr, healthErr, statsErr, trialsErr))
	return limitSummary
}

// tenantTeller is implemented by engine.Shares: the page shows tenants of no other limiter.
type tenantTeller[K comparable] interface {
	Tenants(n int) []engine.TenantUse[K]
	Stats() engine.SharesStats
}

func trialSummary[K comparable](trial *limits.Trial[K]) (trialSummary pagejson.TrialSummary) {
	n := trial.Stats()
	trialSummary = pagejson.TrialSummary{Admitted: n.Admitted, Refused: n.Refused, WouldRefuse: n.WouldRefuse, WouldAdmit: n.WouldAdmit, Failed: n.Failed}
	if limit := limitOf(trial.Candidate()); limit != nil {
		trialSummary.Policy = limit.String()
	}
	return trialSummary
}

// keysByUse returns nil before the first count.
func keysByUse(keysByUse engine.KeysByUse) *pagejson.KeysByUse {
	if keysByUse.At.IsZero() {
		return nil
	}
	return &pagejson.KeysByUse{Age: time.Since(keysByUse.At).Seconds(), Unused: keysByUse.Unused, BelowHalf: keysByUse.BelowHalf, Half: keysByUse.Half, Most: keysByUse.Most, All: keysByUse.All, UnitsInUse: keysByUse.UnitsInUse}
}

func errorText(err error) string {
	if shape.IsNil(err) {
		return ""
	}
	return err.Error()
}

// figures returns a struct's exported fields of simple types; durations in seconds, errors as text.
func figures(of any) map[string]any {
	all := map[string]any{}
	v := reflect.Indirect(reflect.ValueOf(of))
	if v.Kind() != reflect.Struct {
		return all
	}
	for _, structField := range reflect.VisibleFields(v.Type()) {
		field, err := v.FieldByIndexErr(structField.Index)
		if err != nil || !structField.IsExported() || structField.Anonymous {
			continue
		}
		switch value := field.Interface().(type) {
		case time.Duration:
			all[structField.Name] = value.Seconds()
		case time.Time:
			if !value.IsZero() {
				all[structField.Name] = value.UTC().Format(time.RFC3339Nano)
			}
		case error:
			if text := errorText(value); text != "" {
				all[structField.Name] = text
			}
		default:
			if plain := plainOf(field); plain != nil {
				all[structField.Name] = plain
			}
		}
	}
	return all
}

// plainOf returns a number, text or bool without its type's own JSON, nil for anything else.
func plainOf(value reflect.Value) any {
	switch {
	case value.CanInt():
		return value.Int()
	case value.CanUint():
		return value.Uint()
	case value.CanFloat() && (math.IsNaN(value.Float()) || math.IsInf(value.Float(), 0)):
		// JSON has no such number.
		return fmt.Sprint(value.Float())
	case value.CanFloat():
		return value.Float()
	case value.Kind() == reflect.String:
		return value.String()
	case value.Kind() == reflect.Bool:
		return value.Bool()
	}
	return nil
}

func (l *keyed[K]) load() (now load, err error) {
	if l.counts != nil {
		var counts any
		if counts, err = l.askStats.ask("Stats", l.counts); err != nil {
			return now, err
		}
		err = guarded("Stats", func() {
			all := figures(counts)
			now.admitted, now.refused, now.keys = number(all["Admitted"]), number(all["Refused"]), int(number(all["Keys"]))
		})
	}
	if err == nil && l.keyless() {
		now.used, err = l.askUsed.ask("Admit", l.used)
	}
	return now, err
}

// used returns the used share of the single key's limit, 0 if unknown.
func (l *keyed[K]) used() float64 {
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	var none K
	if answer, err := l.live.Admit(ctx, none, 0); err == nil && answer.Limit > 0 {
		return min(1, 1-float64(answer.Remaining)/float64(answer.Limit))
	}
	return 0
}

func (l *keyed[K]) close() {
	if l.walks != nil {
		l.walks.close()
	}
}

func (l *keyed[K]) show(key K) (id, text string) {
	var err error
	if err = guarded("Format", func() { text = l.text.format(key) }); err == nil {
		id = l.hash(text)
	} else {
		l.unwritable(l.called, err)
		// No key has such a text.
		text, id = "", l.hash(fmt.Sprintf("\x00%#v", key))
	}
	l.mu.Lock()
	l.shown.add(id, key, len(text))
	l.mu.Unlock()
	if !l.open || err != nil {
		return id, ""
	}
	return id, shorten(text)
}

// hash returns the ID of a key, different for each limit. Guessing a key needs the secret.
func (l *keyed[K]) hash(text string) string {
	mac := hmac.New(sha256.New, l.secret)
	_, _ = fmt.Fprintf(mac, "%q %s", l.called, text)
	return hex.EncodeToString(mac.Sum(nil)[:16])
}

func (l *keyed[K]) find(keyRequest pagejson.KeyRequest) (key K, err error) {
	switch {
	case keyRequest.ID != "" && keyRequest.Key != "":
		return key, fmt.Errorf("%w: key and id are both set, want one of them", errRequest)
	case keyRequest.ID == "" && keyRequest.Key == "" && !l.keyless():
		return key, fmt.Errorf("%w: neither key nor id is set", errRequest)
	case keyRequest.ID != "":
		l.mu.Lock()
		defer l.mu.Unlock()
		key, ok := l.shown.key(keyRequest.ID)
		if !ok {
			return key, fmt.Errorf("%w: no key of this id was shown of late: load the list again, or search for the key", errUnknown)
		}
		return key, nil
	}
	if key, err = l.text.parse(keyRequest.Key); err != nil {
		return key, fmt.Errorf("%w: key: %w", errRequest, err)
	}
	return key, nil
}

func (l *keyed[K]) id(request pagejson.KeyRequest) (id, text string, err error) {
	key, err := l.find(request)
	if err == nil {
		id, text = l.show(key)
	}
	return id, text, err
}

// Bounds for each half of the keys that a limit remembers by their IDs.
const (
	maxShown      = 4096
	maxShownBytes = 4 << 20
)

// shown remembers keys by their IDs. It has at least the last maxShown keys, or as many as have
// texts of maxShownBytes together, and at most twice as many. The zero shown is ready for use.
type shown[K comparable] struct {
	young, old map[string]shownKey[K]
	// bytes is the bytes of young.
	bytes int
}

type shownKey[K comparable] struct {
	key   K
	bytes int
}

func (s *shown[K]) add(id string, key K, bytes int) {
	if _, ok := s.young[id]; ok {
		return
	}
	if len(s.young) >= maxShown || s.bytes+bytes > maxShownBytes {
		s.old, s.young, s.bytes = s.young, nil, 0
	}
	if s.young == nil {
		s.young = map[string]shownKey[K]{}
	}
	s.young[id] = shownKey[K]{key, bytes}
	s.bytes += bytes
}

func (s *shown[K]) key(id string) (key K, ok bool) {
	found, ok := s.young[id]
	if !ok {
		if found, ok = s.old[id]; ok {
			s.add(id, found.key, found.bytes)
		}
	}
	return found.key, ok
}

const (
	verbReset  = "reset"
	verbCharge = "charge"
	verbBlock  = "block"
	verbLift   = "lift"
)

// methods are the optional methods of a limiter, in process or remote. Each is nil if the limiter does not have it.
type methods[K comparable] struct {
	reset func(ctx context.Context, key K) (bool, error)
	block func(ctx context.Context, key K, d time.Duration) error
}

func methodsOf[K comparable](limiter limits.Limiter[K]) (methods methods[K]) {
	switch of := any(limiter).(type) {
	case interface{ Reset(key K) bool }:
		methods.reset = func(_ context.Context, key K) (bool, error) { return of.Reset(key), nil }
	case *single.Limiter:
		methods.reset = func(context.Context, K) (bool, error) { return of.Reset(), nil }
	case interface {
		Reset(ctx context.Context, key K) (bool, error)
	}:
		methods.reset = of.Reset
	}
	switch of := any(limiter).(type) {
	case interface {
		Block(key K, duration time.Duration) error
	}:
		methods.block = func(_ context.Context, key K, duration time.Duration) error { return of.Block(key, duration) }
	case interface {
		Block(ctx context.Context, key K, duration time.Duration) error
	}:
		methods.block = of.Block
	}
	return methods
}

func (l *keyed[K]) verbs() (all []string) {
	if l.reset != nil {
		all = append(all, verbReset)
	}
	all = append(all, verbCharge)
	if l.block != nil {
		all = append(all, verbBlock, verbLift)
	}
	return all
}

func (l *keyed[K]) change(ctx context.Context, changeRequest pagejson.ChangeRequest) error {
	key, err := l.find(changeRequest.KeyRequest)
	if err != nil {
		return err
	}
	if changeRequest.Do != verbCharge && changeRequest.Units != 0 || changeRequest.Do != verbBlock && changeRequest.For != "" {
		return fmt.Errorf("%w: units belong to %q, and for to %q", errRequest, verbCharge, verbBlock)
	}
	switch do := changeRequest.Do; {
	case do == verbReset && l.reset == nil:
		err = fmt.Errorf("%w: this limiter has no Reset", errVerb)
	case do == verbReset:
		_, err = l.reset(ctx, key)
	case do == verbCharge:
		err = l.charge(ctx, key, changeRequest.Units)
	case (do == verbBlock || do == verbLift) && l.block == nil:
		err = fmt.Errorf("%w: this limiter blocks no keys", errVerb)
	case do == verbBlock:
		var duration time.Duration
		if duration, err = time.ParseDuration(changeRequest.For); err != nil || duration <= 0 {
			return fmt.Errorf("%w: for is %.40q, want how long the block lasts, such as \"10m\"", errRequest, changeRequest.For)
		}
		if duration > penalty.Longest {
			return fmt.Errorf("%w: for is %.40q, want at most 4 years, which are \"35040h\"", errRequest, changeRequest.For)
		}
		err = l.block(ctx, key, duration)
	case do == verbLift:
		err = l.block(ctx, key, 0)
	default:
		err = fmt.Errorf("%w: do is %.40q, want %q, %q, %q or %q", errRequest, changeRequest.Do, verbReset, verbCharge, verbBlock, verbLift)
	}
	return err
}

// charge takes units even beyond the limit, or gives some back.
func (l *keyed[K]) charge(ctx context.Context, key K, n int64) error {
	if n == 0 || n < -maxUnits || n > maxUnits {
		return fmt.Errorf("%w: units is %d, want %d to %d and not 0", errRequest, n, -maxUnits, maxUnits)
	}
	switch limiter := any(l.live).(type) {
	case interface {
		Refund(key K, n int64) policy.Decision
	}:
		return recorded(limiter.Refund(key, -n).Allowed || l.blocked(ctx, key) > 0)
	case *single.Limiter:
		return recorded(limiter.Refund(-n).Allowed)
	case interface {
		Charge(ctx context.Context, key K, n int64) error
	}:
		return limiter.Charge(ctx, key, n)
	}
	if n < 0 {
		return fmt.Errorf("%w: this limiter cannot give units back here", errVerb)
	}
	grant, err := l.live.Hold(ctx, limits.Call[K]{Key: key})
	switch {
	case err != nil:
		return err
	case !grant.Allowed:
		return recorded(false)
	}
	return grant.Settle(ctx, n)
}

// maxUnits bounds the units of a request.
const maxUnits = int64(1e12)

func recorded(ok bool) error {
	if !ok {
		return fmt.Errorf("%w: the limiter could not record it", errVerb)
	}
	return nil
}

func (l *keyed[K]) blocked(ctx context.Context, key K) (longest time.Duration) {
	switch limiter := any(l.live).(type) {
	case *engine.Tiered[K]:
		for _, e := range limiter.Engines() {
			longest = max(longest, e.Blocked(key))
		}
	case interface{ Blocked(key K) time.Duration }:
		longest = limiter.Blocked(key)
	case interface {
		Blocked(ctx context.Context, key K) (time.Duration, error)
	}:
		longest, _ = limiter.Blocked(ctx, key)
	}
	return longest
}

// number returns a figure as a number, 0 if it is none.
func number(figure any) float64 {
	switch n := figure.(type) {
	case int64:
		return float64(n)
	case uint64:
		return float64(n)
	}
	return 0
}
