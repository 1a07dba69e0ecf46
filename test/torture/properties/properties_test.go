package properties

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/internal/testkit/testenv"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/test/torture/internal/fault"
)

var lasting = flag.Duration("for", 0, "how long the properties are tried, all together; 0 is the short part")

func TestMain(m *testing.M) {
	// Defaults of this package; the command line overrides them.
	checks := "1200"
	if testenv.Race {
		checks = "100"
	}
	for name, value := range map[string]string{"rapid.checks": checks, "rapid.steps": "50", "rapid.seed": "1"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	flag.Parse()
	goleak.VerifyTestMain(m)
}

// check tries a property: once, or for its share of the long part, with successive seeds.
// -rapid.seed 0 draws them.
func check(t *testing.T, property func(*rapid.T)) {
	t.Helper()
	const properties = 2
	seed := flag.Lookup("rapid.seed").Value
	first := must.Get(strconv.ParseUint(seed.String(), 10, 64))
	defer func() { _ = seed.Set(strconv.FormatUint(first, 10)) }()
	begin := time.Now()
	for n := 0; n == 0 || time.Since(begin) < *lasting/properties; n++ {
		if first != 0 {
			_ = seed.Set(strconv.FormatUint(first+uint64(n), 10))
		}
		rapid.Check(t, func(t *rapid.T) { rapid.SyncTest(t, property) })
		if *lasting > 0 && n%10 == 0 {
			fmt.Fprintf(os.Stderr, "properties: %s, %v\n", t.Name(), time.Since(begin).Round(time.Second))
		}
	}
}

func TestEngineIsThePolicy(t *testing.T) {
	check(t, func(t *rapid.T) {
		p, per := drawPolicy(t)
		run(t, p, per, engine.EvictLeastDebt, 1<<10)
	})
}

// A table too small for its keys adds only the documented and counted answers.
func TestCrowdedEngineIsThePolicyAndCounts(t *testing.T) {
	check(t, func(t *rapid.T) {
		p, per := drawPolicy(t)
		when := rapid.SampledFrom([]engine.WhenFull{engine.EvictLeastDebt, engine.RefuseNew, engine.AdmitNew}).Draw(t, "when full")
		run(t, p, per, when, rapid.IntRange(1, keys-1).Draw(t, "most keys"))
	})
}

// drawPolicy draws a policy, and the time scale of its changes.
func drawPolicy(t *rapid.T) (policy.Policy, time.Duration) {
	limit := rapid.Int64Range(1, 20).Draw(t, "limit")
	count := rapid.Int64Range(1, 50).Draw(t, "count")
	per := time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(2*time.Second)).Draw(t, "per"))
	p := rapid.SampledFrom([]policy.Policy{
		policy.Must(policy.Funnel(limit, count, per)),
		policy.Must(policy.FixedWindow(limit, per)),
		policy.Must(policy.SlidingWindow(limit, per)),
		policy.Must(policy.AtMost(limit, per)),
		policy.Must(policy.Queue(limit, count, per)),
		policy.Must(policy.Bursty(count, per, limit)),
		policy.Must(policy.WarmingUp(count, per, per, 3)),
	}).Draw(t, "policy")
	return p, per
}

const keys = 5

// idle differs from the janitor's ticks, and is short enough for keys to leave.
const idle = 50 * time.Millisecond

// machine is an engine with a model of each key. Calls are sequential, and take no time unless they wait.
type machine struct {
	t        *rapid.T
	e        *engine.Engine[int]
	p        policy.Policy
	per      time.Duration
	begin    time.Time
	when     engine.WhenFull
	most     int
	sabotage *fault.Switch
	keys     [keys]*word
	// version changes with each change of a key.
	version [keys]int
	held    []held

	// before and called are Stats and the instant before the last call.
	before engine.Stats
	called policy.Instant

	admitted, refused, forgiven, full uint64
}

type held struct {
	key, version int
	r            engine.Reservation[int]
	back         func()
}

func run(t *rapid.T, p policy.Policy, per time.Duration, when engine.WhenFull, most int) {
	m := &machine{t: t, p: p, per: per, when: when, most: most, sabotage: &fault.Switch{}, begin: time.Now()}
	e, err := engine.New[int](engine.Config{
		Policy: m.sabotage.Wrap(p), Idle: idle, MaxKeys: most, WhenFull: when, Restarts: 1 << 30,
		OpenTimeout: time.Hour, // of virtual time: nothing ever takes so long
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}()
	m.e = e
	for i := range m.keys {
		m.keys[i] = &word{p: p}
	}
	actions := map[string]func(*rapid.T){
		"Choke":   m.choke,
		"Take":    m.take,
		"Peek":    m.peek,
		"Refund":  m.refund,
		"Reserve": m.reserve,
		"Cancel":  m.cancel,
		"Reset":   m.reset,
		"TakeAll": m.takeAll,
		"Wait":    m.wait,
		"pass":    m.pass,
		"kill":    m.kill,
	}
	for name, action := range actions {
		actions[name] = func(t *rapid.T) {
			m.before, m.called = m.e.Stats(), m.now()
			action(t)
		}
	}
	actions[""] = m.laws
	t.Repeat(actions)
}

func (m *machine) now() policy.Instant { return policy.Instant(time.Since(m.begin)) + 1 }

func (m *machine) key(t *rapid.T) int { return rapid.IntRange(0, keys-1).Draw(t, "key") }

func (m *machine) units(t *rapid.T) int64 {
	return rapid.OneOf(rapid.Int64Range(1, 4), rapid.Int64Range(-1, 25)).Draw(t, "n")
}

func (m *machine) unrecorded() bool {
	stats := m.e.Stats()
	return stats.Full > m.before.Full
}

// answered compares an answer with the model, and counts it.
func (m *machine) answered(t *rapid.T, key int, got policy.Decision, n int64, patience time.Duration) {
	t.Helper()
	o := m.keys[key]
	if m.unrecorded() {
		m.full++
		want := policy.Decision{Limit: got.Limit, RetryAfter: idle}
		if m.when == engine.AdmitNew {
			o.forget()
			back := o.mark()
			want = o.take(m.now(), n, patience)
			back()
		}
		m.same(t, "an answer without a record", got, want)
	} else {
		m.same(t, "the answer", got, o.take(m.now(), n, patience))
		m.version[key]++
	}
	m.count(got.Allowed)
}

func (m *machine) same(t *rapid.T, what string, got, want policy.Decision) {
	t.Helper()
	if got != want {
		t.Fatalf("%s is %+v, and should be %+v, at %d", what, got, want, m.now())
	}
}

func (m *machine) count(allowed bool) {
	if allowed {
		m.admitted++
	} else {
		m.refused++
	}
}

func (m *machine) choke(t *rapid.T) {
	key := m.key(t)
	passed := m.e.Choke(key)
	if m.unrecorded() {
		m.full++
		if passed != (m.when == engine.AdmitNew) {
			t.Fatalf("without a record it passed: %v", passed)
		}
	} else if want := m.keys[key].take(m.now(), 1, 0); want.Allowed != passed {
		t.Fatalf("Choke is %v, and should be %v", passed, want.Allowed)
	} else {
		m.version[key]++
	}
	m.count(passed)
}

func (m *machine) take(t *rapid.T) {
	key, n := m.key(t), m.units(t)
	d := m.e.Take(key, n)
	if n == 0 {
		m.same(t, "a look", d, m.keys[key].take(m.now(), 0, 0))
		return
	}
	m.answered(t, key, d, n, 0)
}

func (m *machine) peek(t *rapid.T) {
	key := m.key(t)
	m.same(t, "Peek", m.e.Peek(key, 0), m.keys[key].take(m.now(), 0, 0))
}

func (m *machine) refund(t *rapid.T) {
	key, n := m.key(t), rapid.Int64Range(-3, 5).Draw(t, "n")
	if n < 0 && m.when != engine.EvictLeastDebt {
		n = -n // a full table refuses it, uncounted
	}
	m.same(t, "Refund", m.e.Refund(key, n), m.keys[key].refund(m.now(), n))
	m.version[key]++
}

func (m *machine) patience(t *rapid.T) time.Duration {
	return time.Duration(rapid.Int64Range(0, int64(3*m.per)).Draw(t, "patience"))
}

func (m *machine) reserve(t *rapid.T) {
	key, n, patience := m.key(t), rapid.Int64Range(1, 25).Draw(t, "n"), m.patience(t)
	back := m.keys[key].mark()
	r := m.e.Reserve(key, n, patience)
	m.answered(t, key, r.Decision, n, patience)
	if r.Allowed && m.e.Stats().Full == m.before.Full {
		m.held = append(m.held, held{key, m.version[key], r, back})
	}
}

// cancel gives back a reservation, unless its key changed since: the policies' tests check that.
func (m *machine) cancel(t *rapid.T) {
	if len(m.held) == 0 {
		t.Skip("nothing is reserved")
	}
	i := rapid.IntRange(0, len(m.held)-1).Draw(t, "reservation")
	h := m.held[i]
	m.held = slices.Delete(m.held, i, i+1)
	if h.version != m.version[h.key] {
		return
	}
	h.r.Cancel()
	h.r.Cancel()
	m.keys[h.key].undo(m.now(), h.back)
	m.version[h.key]++
}

func (m *machine) reset(t *rapid.T) {
	key := m.key(t)
	if got, want := m.e.Reset(key), m.keys[key].owes(m.now()); got != want {
		t.Fatalf("Reset is %v, and should be %v", got, want)
	}
	m.keys[key].forget()
	m.version[key]++
}

// takeAll takes from some keys, maybe the same, or from none.
func (m *machine) takeAll(t *rapid.T) {
	if m.most < keys {
		t.Skip("a full table may refuse one of them")
	}
	drawn := rapid.SliceOfN(rapid.IntRange(0, keys-1), 1, 4).Draw(t, "keys")
	n := rapid.Int64Range(1, 6).Draw(t, "n")
	claims, units := make([]engine.Claim, len(drawn)), map[int]int64{}
	for i, key := range drawn {
		claims[i] = m.e.Claim(key, n)
		units[key] += n
	}
	out := engine.TakeAll(claims...)

	refused := map[int]bool{}
	backs := map[int]func(){}
	for key := range keys {
		if units[key] == 0 {
			continue
		}
		backs[key] = m.keys[key].mark()
		if d := m.keys[key].take(m.now(), units[key], 0); !d.Allowed || d.Wait > 0 {
			refused[key] = true
		}
	}
	if out.Allowed != (len(refused) == 0) {
		t.Fatalf("TakeAll is %+v, and these should refuse: %v", out, refused)
	}
	for key, back := range backs {
		if !out.Allowed {
			back()
		}
		m.version[key]++
		if out.Allowed || refused[key] {
			m.count(out.Allowed)
		}
	}
	for i, key := range drawn {
		d := m.keys[key].take(m.now(), 0, 0)
		if got := out.Decisions[i]; got.Allowed == refused[key] || got.Remaining != d.Remaining || got.ResetAfter != d.ResetAfter {
			t.Fatalf("claim %d is %+v, and key %d stands at %+v", i, got, key, d)
		}
	}
}

func (m *machine) wait(t *rapid.T) {
	if m.most < keys {
		t.Skip("a full table may have no room")
	}
	key, n, limit := m.key(t), rapid.Int64Range(1, 6).Draw(t, "n"), m.patience(t)+1
	o := m.keys[key]
	back := o.mark()
	want := o.take(m.now(), n, limit)
	if want.Wait >= limit {
		back() // its turn and the deadline coincide
		t.Skip("either may come first")
	}
	begin := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	err := m.e.Wait(ctx, key, n)
	cancel()
	m.count(err == nil)
	m.version[key]++
	switch waited := time.Since(begin); {
	case (err == nil) != want.Allowed:
		t.Fatalf("Wait is %v, and should be %+v", err, want)
	case err == nil && waited != want.Wait:
		t.Fatalf("Wait took %v, and should take %v", waited, want.Wait)
	case err != nil && waited != 0:
		t.Fatalf("Wait took %v to say %v", waited, err)
	}
}

// pass lets time pass: a little, or until all units have come back.
func (m *machine) pass(t *rapid.T) {
	time.Sleep(time.Duration(rapid.Int64Range(1, int64(m.per)).Draw(t, "time")) << (4 * rapid.IntRange(0, 1).Draw(t, "sixteen times")))
}

func (m *machine) kill(t *rapid.T) {
	m.sabotage.Arm(rapid.SampledFrom([]fault.Kind{fault.Panic, fault.Goexit}).Draw(t, "how"))
}

func (m *machine) laws(t *rapid.T) {
	synctest.Wait()
	there := map[int]bool{}
	for key := range m.e.All() {
		if there[key] {
			t.Fatalf("key %d is there twice", key)
		}
		there[key] = true
	}
	stats := m.e.Stats()
	for key, o := range m.keys {
		if there[key] {
			continue
		}
		// Room is made at the instant of the call: if it had to wait, the key may owe nothing by
		// now.
		drained := m.most < keys && !o.owes(m.now()) && o.owes(m.called)
		if o.owes(m.now()) || drained && m.forgiven < stats.Forgiven {
			o.forget()
			m.version[key]++
			m.forgiven++
		}
	}
	switch {
	case m.e.Health() != nil:
		t.Fatal(m.e.Health())
	case stats.Keys != len(there) || stats.Keys > m.most:
		t.Fatalf("%d keys of at most %d, and Stats says %d", len(there), m.most, stats.Keys)
	case stats.Admitted != m.admitted || stats.Refused != m.refused:
		t.Fatalf("%d were admitted and %d refused, and Stats says %d and %d",
			m.admitted, m.refused, stats.Admitted, stats.Refused)
	case stats.Forgiven != m.forgiven:
		t.Fatalf("%d were forgiven, and Stats says %d", m.forgiven, stats.Forgiven)
	case stats.Full != m.full:
		t.Fatalf("%d answers were without a record, and Stats says %d", m.full, stats.Full)
	case stats.Evicted < stats.Forgiven || stats.Unavailable > 0 || stats.Abandoned > 0:
		t.Fatalf("Stats says %+v", stats)
	}
}
