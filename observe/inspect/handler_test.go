package inspect_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/adapter/pagejson"
	"github.com/ral-limiter/ral/internal/testkit/logbuffer"
	"github.com/ral-limiter/ral/internal/testkit/must"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/observe/inspect"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/single"
)

// remote is a limiter other than an engine, like fleet.Limiter.
type remote struct {
	limits.Limiter[string]
	of      *engine.Engine[string]
	fail    error
	healthy error
}

func (r *remote) Admit(ctx context.Context, key string, n int64) (limits.Answer, error) {
	if r.fail != nil {
		return limits.Answer{}, r.fail
	}
	return r.of.Admit(ctx, key, n)
}
func (r *remote) Remote() bool                                      { return true }
func (r *remote) Health() error                                     { return r.healthy }
func (r *remote) Reset(_ context.Context, key string) (bool, error) { return r.of.Reset(key), r.fail }
func (r *remote) Charge(_ context.Context, key string, n int64) error {
	r.of.Refund(key, -n)
	return r.fail
}
func (r *remote) Block(_ context.Context, key string, d time.Duration) error {
	return r.of.Block(key, d)
}
func (r *remote) Blocked(_ context.Context, key string) (time.Duration, error) {
	return r.of.Blocked(key), nil
}

// kinds has every kind of limiter, by the name of its limit.
type kinds struct {
	*client
	engine *engine.Engine[string]
	tiered *engine.Tiered[string]
	one    *single.Limiter
	remote *remote
}

func allKinds(t *testing.T) kinds {
	k := kinds{engine: newEngine[string](t, engine.Config{Name: "api"}), one: single.MustNew(policy.Funnel(10, 1, time.Hour))}
	e := newEngine[string](t, engine.Config{})
	k.remote = &remote{Limiter: e, of: e}
	k.tiered = must.Get(engine.NewTiered[string](engine.Config{Name: "plan", Policy: policy.Must(policy.Funnel(10, 1, time.Hour))}, policy.Must(policy.FixedWindow(20, 24*time.Hour))))
	t.Cleanup(func() { require.NoError(t, k.tiered.Close()) })
	k.client, _ = operated(t,
		inspect.Limit[string]{Limiter: k.engine},
		inspect.Limit[string]{Limiter: k.tiered},
		inspect.Limit[struct{}]{Name: "all", Limiter: k.one},
		inspect.Limit[string]{Name: "fleet", Limiter: k.remote, Stats: func() any { return &struct{ Admitted, Refused uint64 }{7, 3} }},
		inspect.Limit[string]{Name: "bare", Limiter: limits.ForAnyKey[string](k.one)},
	)
	return k
}

// Promise: The page shows the first fault of the program's configuration, and how many there are more.
func TestOverviewHasTheHealthOfTheConfiguration(t *testing.T) {
	var health error
	c := serve(t, newHandler(t, inspect.Config{Health: func() error { return health }}))
	overview := func() string { return get[pagejson.Overview](c, "limits").Health }
	assert.Empty(t, overview())
	health = errors.New("ral: limits.conf:1: a: it is wrong")
	assert.Equal(t, "limits.conf:1: a: it is wrong", overview())
	health = errors.Join(health, health, health)
	assert.Equal(t, "limits.conf:1: a: it is wrong (and 2 more)", overview())
}

func TestOverviewListsEveryLimit(t *testing.T) {
	k := allKinds(t)
	for range 12 {
		k.engine.Choke("a")
	}
	k.remote.healthy = errors.New("no Redis")
	o := get[pagejson.Overview](k.client, "limits")
	assert.True(t, o.Changes)
	assert.False(t, o.Hashed)
	assert.Equal(t, 2.0, o.Every)
	var names []string
	by := map[string]pagejson.LimitSummary{}
	for _, l := range o.Limits {
		names = append(names, l.Name)
		by[l.Name] = l
	}
	assert.Equal(t, []string{"api", "plan", "plan.2", "all", "fleet", "bare"}, names)
	all := []string{"reset", "charge", "block", "lift"}
	for name, want := range map[string]pagejson.LimitSummary{
		"api":    {Policy: "funnel 10, 1/h", Units: 10, Lists: true, Verbs: all},
		"plan":   {Policy: "funnel 10, 1/h", Units: 10, Lists: true, Verbs: all},
		"plan.2": {Policy: k.tiered.Engines()[1].Limit().String(), Units: 20, Lists: true, Verbs: all},
		"all":    {Policy: "funnel 10, 1/h", Units: 10, Keyless: true, Verbs: []string{"reset", "charge"}},
		"fleet":  {Policy: "funnel 10, 1/h", Units: 10, Verbs: all, Health: "no Redis", Alarms: []pagejson.Alarm{{Words: "no Redis"}}},
		"bare":   {Policy: "funnel 10, 1/h", Units: 10, Verbs: []string{"charge"}},
	} {
		got := by[name]
		want.Usual = -1
		want.Name, want.Figures, want.Points, want.Words, want.Use = name, got.Figures, got.Points, policy.Describe(policy.Must(policy.Parse(want.Policy))), got.Use
		assert.Equal(t, want, got)
		assert.NotNil(t, got.Points, "a list, also if it is empty")
	}
	assert.Equal(t, 10.0, by["api"].Figures["Admitted"])
	assert.Equal(t, 2.0, by["api"].Figures["Refused"])
	assert.Equal(t, 1.0, by["api"].Figures["Keys"])
	assert.NotContains(t, by["api"].Figures, "SaveError")
	assert.NotContains(t, by["api"].Figures, "SavedAt")
	assert.Equal(t, map[string]any{"Admitted": 7.0, "Refused": 3.0}, by["fleet"].Figures)
	assert.Empty(t, by["all"].Figures)
}

// Promise: Keys that owe most are listed in pages.
func TestListOfOwingKeys(t *testing.T) {
	k := allKinds(t)
	for i := range 9 {
		k.engine.Take(fmt.Sprint("key", i), int64(i))
		k.tiered.Take(fmt.Sprint("key", i), int64(i))
	}
	require.NoError(t, k.engine.Block("key7", time.Hour))
	for _, limit := range []string{"api", "plan", "plan.2"} {
		var keys []string
		after := ""
		for pages := 1; ; pages++ {
			list := get[pagejson.List](k.client, "keys?by=owed&n=3&limit="+limit+"&after="+after)
			assert.Equal(t, uint64(8), list.Total)
			for _, row := range list.Rows {
				keys = append(keys, row.Key)
				used := row.Key[3] - '0'
				total := 10.0
				if limit == "plan.2" {
					total = 20
				}
				assert.InDelta(t, float64(used)/total, row.Share, 1e-9)
				assert.Equal(t, int64(total)-int64(used), row.Remaining)
				assert.Positive(t, row.Full)
				assert.Equal(t, limit == "api" && used == 7, row.Blocked > 3000, row.Key)
			}
			if after = list.Next; after == "" {
				assert.Equal(t, 3, pages)
				break
			}
		}
		assert.Equal(t, []string{"key8", "key7", "key6", "key5", "key4", "key3", "key2", "key1"}, keys, "in pages, without one twice or missing")
	}
	assertFault(t, k.send(http.MethodGet, "keys?by=owed&limit=fleet", ""), http.StatusConflict, "does not list")
	assertFault(t, k.send(http.MethodGet, "keys?by=refused&limit=all", ""), http.StatusConflict, "does not list")
}

func TestKeyIsExplainedByEachLimit(t *testing.T) {
	k := allKinds(t)
	k.engine.Take("a", 4)
	k.tiered.Take("a", 10)
	k.remote.of.Take("a", 4)
	for range 10 {
		k.one.Choke()
	}

	x := k.explains("key", key("api", "a"))
	assert.Equal(t, "a", x.Key)
	assert.True(t, x.Allowed)
	assert.True(t, x.Known)
	require.Len(t, x.Parts, 1)
	part := x.Parts[0]
	assert.Equal(t, []int64{4, 10, 6}, []int64{part.Used, part.Units, part.Remaining})
	assert.Equal(t, "funnel 10, 1/h", part.Policy)
	assert.NotEmpty(t, part.Words)
	assert.InDelta(t, 4*3600, part.Full, 60)
	require.Len(t, part.Returns, 4)
	assert.Equal(t, int64(7), part.Returns[0].Remaining)
	assert.InDelta(t, 3600, part.Returns[0].After, 60)
	assert.Contains(t, x.Words, "4 of 10 used")

	// Of several limits, the deciding limit.
	x = k.explains("key", key("plan.2", "a"))
	assert.False(t, x.Allowed)
	assert.Equal(t, 0, x.Binding)
	require.Len(t, x.Parts, 2)
	assert.Equal(t, []int64{0, 10}, []int64{x.Parts[0].Remaining, x.Parts[1].Remaining})
	assert.InDelta(t, 3600, x.Retry, 60)

	x = k.explains("key", pagejson.KeyRequest{Limit: "all"})
	assert.False(t, x.Allowed)
	x = k.explains("key", key("fleet", "a"))
	assert.Equal(t, int64(6), x.Parts[0].Remaining)
	assert.Equal(t, "process", x.Parts[0].Source)

	// A look opens no key.
	x = k.explains("key", key("api", "b"))
	assert.False(t, x.Known)
	assert.Equal(t, 1, k.engine.Len())

	k.remote.fail = context.DeadlineExceeded
	assertFault(t, k.post("key", key("fleet", "a")), http.StatusGatewayTimeout, "deadline")
	k.remote.fail = errors.New("no Redis")
	assertFault(t, k.post("key", key("fleet", "a")), http.StatusServiceUnavailable, "no Redis")
}

func TestChangesTakeEffectOnTheirKey(t *testing.T) {
	k := allKinds(t)
	do := func(limit, of, verb, d string) pagejson.ChangeRequest {
		return pagejson.ChangeRequest{KeyRequest: key(limit, of), Do: verb, For: d}
	}
	for _, limit := range []string{"api", "plan", "plan.2", "fleet"} {
		t.Run(limit, func(t *testing.T) {
			total := 0
			if limit == "plan.2" {
				total = 1
			}
			before := k.explains("key", key(limit, limit)).Parts[total].Remaining
			x := k.explains("change", charge(limit, limit, 8))
			assert.Equal(t, before-8, x.Parts[total].Remaining)
			assert.Equal(t, before-5, k.explains("change", charge(limit, limit, -3)).Parts[total].Remaining)
			// Beyond the limit, too.
			x = k.explains("change", charge(limit, limit, 9))
			assert.False(t, x.Allowed)
			k.explains("change", do(limit, limit, "reset", ""))

			x = k.explains("change", do(limit, limit, "block", "10m"))
			assert.False(t, x.Allowed)
			assert.InDelta(t, 600, x.Blocked, 60)
			assert.Positive(t, k.explains("change", charge(limit, limit, 1)).Blocked, "a blocked key can be charged")
			x = k.explains("change", do(limit, limit, "lift", ""))
			assert.True(t, x.Allowed)
			assert.Zero(t, x.Blocked)
			assert.Equal(t, before-1, x.Parts[total].Remaining, "what was used goes on counting")
			k.explains("change", do(limit, limit, "block", "10m"))
			x = k.explains("change", do(limit, limit, "reset", ""))
			assert.True(t, x.Allowed)
			assert.Zero(t, x.Blocked)
			assert.Equal(t, before, x.Parts[total].Remaining)
		})
	}
	assert.True(t, k.tiered.Choke("plan"))

	only := pagejson.ChangeRequest{KeyRequest: pagejson.KeyRequest{Limit: "all"}, Do: "charge", Units: 10}
	assert.False(t, k.explains("change", only).Allowed)
	only.Do, only.Units = "reset", 0
	assert.True(t, k.explains("change", only).Allowed)
	assertFault(t, k.post("change", do("all", "", "block", "1m")), http.StatusConflict, "blocks no keys")
	assertFault(t, k.post("change", do("all", "", "lift", "")), http.StatusConflict, "blocks no keys")
	assertFault(t, k.post("change", do("api", "k", "lift", "1m")), http.StatusBadRequest, "belong")
	assertFault(t, k.post("change", do("api", "k", "block", "0s")), http.StatusBadRequest, "how long the block lasts")
	assertFault(t, k.post("change", charge("bare", "k", -1)), http.StatusConflict, "give units back")
	assertFault(t, k.post("change", do("all", "k", "reset", "")), http.StatusBadRequest, "text of a key")
	assertFault(t, k.post("change", do("bare", "k", "reset", "")), http.StatusConflict, "no Reset")

	require.NoError(t, k.engine.Close())
	assertFault(t, k.post("change", do("api", "k", "block", "1m")), http.StatusServiceUnavailable, "closed")
}

// With the key's hash and the outcome.
//
// Promise: Changes are logged with their operator.
func TestChangesAreLogged(t *testing.T) {
	t.Run("keys hashed", func(t *testing.T) { changesAreLogged(t, false) })
	t.Run("keys shown", func(t *testing.T) { changesAreLogged(t, true) })
}

func changesAreLogged(t *testing.T, show bool) {
	log := &logbuffer.Buffer{}
	c, e := attacked(t, inspect.Config{Tokens: map[string]string{"anna": anna, "bert": bert}, Logger: log.Logger(), ShowKeys: show})
	c.token = bert
	x := c.explains("change", charge("api", "10.0.0.1", 3))
	require.NoError(t, e.Close())
	c.token = anna
	c.post("change", pagejson.ChangeRequest{KeyRequest: key("api", "10.0.0.1"), Do: "block", For: "10m"})
	lines := log.Lines()
	require.Len(t, lines, 2)
	for i, want := range [][]string{
		{"level=INFO", "operator=bert", "do=charge", "limit=api", "units=3", "id=" + x.ID, "remote=127.0.0.1:"},
		{"level=WARN", "operator=anna", "do=block", "for=10m", "id=" + x.ID, "closed"},
	} {
		for _, part := range want {
			assert.Contains(t, lines[i], part)
		}
		assert.NotContains(t, lines[i], "10.0.0.1")
	}
}

// Promise: Keys of every type are shown, explained and changed.
func TestKeysOfEveryType(t *testing.T) {
	type user int32
	type pair struct{ a, b string }
	addrs, users := newEngine[netip.Addr](t, engine.Config{Name: "addr"}), newEngine[user](t, engine.Config{Name: "user"})
	pairs, flags := newEngine[pair](t, engine.Config{Name: "pair"}), newEngine[bool](t, engine.Config{Name: "flag"})
	c := serve(t, newHandler(t, inspect.Config{ShowKeys: true},
		inspect.Limit[netip.Addr]{Limiter: addrs}, inspect.Limit[user]{Limiter: users}, inspect.Limit[bool]{Limiter: flags},
		inspect.Limit[pair]{
			Limiter: pairs,
			Format:  func(p pair) string { return fmt.Sprintf("%q/%q", p.a, p.b) },
			Parse: func(text string) (p pair, err error) {
				_, err = fmt.Sscanf(text, "%q/%q", &p.a, &p.b)
				return p, err
			},
		}))
	addrs.Take(netip.MustParseAddr("2001:db8::1"), 4)
	users.Take(-7, 4)
	pairs.Take(pair{"x", "y z"}, 4)
	flags.Take(true, 4)
	for limit, text := range map[string]string{"addr": "2001:db8::1", "user": "-7", "pair": `"x"/"y z"`, "flag": "true"} {
		assert.Equal(t, text, get[pagejson.List](c, "keys?by=owed&limit="+limit).Rows[0].Key)
		x := c.explains("key", key(limit, text))
		assert.Equal(t, text, x.Key)
		assert.Equal(t, int64(6), x.Parts[0].Remaining)
		a := c.post("key", key(limit, "?"))
		assertFault(t, a, http.StatusBadRequest, "key: ")
		assert.NotRegexp(t, `strconv|Parse`, a.fault(t), "no names of Go")
	}
	assertFault(t, c.post("key", key("user", "2147483648")), http.StatusBadRequest, "range")
}

func TestSettingsAreChecked(t *testing.T) {
	e := newEngine[string](t, engine.Config{})
	type pair struct{ a, b string }
	pairs := newEngine[pair](t, engine.Config{Name: "pairs"})
	ok := inspect.Limit[string]{Name: "x", Limiter: e}
	none := func(string) (pair, error) { return pair{}, nil }
	type tokens = map[string]string
	for _, c := range []struct {
		config inspect.Config
		limits []inspect.AnyLimit
		want   string
	}{
		{inspect.Config{Hosts: []string{"*.example.com"}}, nil, `Config: Hosts is "*.example.com", want the name of one host, as a pattern matches none`},
		{inspect.Config{Hosts: []string{"a:80"}}, nil, `Config: Hosts is "a:80", want a host name without a port`},
		{inspect.Config{Tokens: tokens{"anna": "0123456789abcde"}}, nil, `Config: Tokens["anna"] is 15 bytes long, want 16 to 256`},
		{inspect.Config{Tokens: tokens{"": anna}}, nil, `Config: Tokens[""] is of no operator, want a name`},
		{inspect.Config{Tokens: tokens{"anna": "0123456789 abcdef"}}, nil, `Config: Tokens["anna"] is not printable, want ASCII characters without spaces`},
		{inspect.Config{Tokens: tokens{"anna": anna, "bert": anna, "carl": bert}}, nil,
			`Config: Tokens["bert"] is that of "anna", want a token of each operator's own, by which changes are logged`},
		{inspect.Config{}, nil, "New: limits is empty, want 1 limit or more for the page to show"},
		{inspect.Config{}, []inspect.AnyLimit{inspect.Limit[string]{Name: "x", Limiter: (*engine.Engine[string])(nil)}},
			`Limit, argument 1 of New: Limiter is nil, want a limiter, such as an *engine.Engine`},
		{inspect.Config{}, []inspect.AnyLimit{ok, nil}, `Limit, argument 2 of New: Limit is nil, want an inspect.Limit`},
		{inspect.Config{}, []inspect.AnyLimit{ok, ok}, `Limit, argument 2 of New: Name is "x", want a name that no other limit of the handler has`},
		{inspect.Config{}, []inspect.AnyLimit{inspect.Limit[string]{Limiter: e}, inspect.Limit[pair]{
			Limiter: newEngine[pair](t, engine.Config{}), Format: func(pair) string { return "" }, Parse: none,
		}}, `Limit, argument 2 of New: Name is "ral", want a name that no other limit of the handler has`},
		{inspect.Config{}, []inspect.AnyLimit{inspect.Limit[struct{}]{Limiter: single.MustNew(policy.Funnel(1, 1, time.Hour))}},
			`Limit, argument 1 of New: Name is "", want printable text of 1 to 64 bytes, here or in engine.Config.Name`},
		{inspect.Config{}, []inspect.AnyLimit{inspect.Limit[string]{Name: "a\nb", Limiter: e}},
			`Limit, argument 1 of New: Name is "a\nb", want printable text of 1 to 64 bytes, here or in engine.Config.Name`},
		{inspect.Config{}, []inspect.AnyLimit{inspect.Limit[string]{Name: strings.Repeat("x", 65), Limiter: e}},
			`Limit, argument 1 of New: Name is "` + strings.Repeat("x", 65) + `", want printable text of 1 to 64 bytes, here or in engine.Config.Name`},
		{inspect.Config{}, []inspect.AnyLimit{inspect.Limit[pair]{Limiter: pairs, Parse: none}},
			`Limit, argument 1 of New: Format, Parse is nil, want both, for keys of type inspect_test.pair`},
	} {
		_, err := inspect.New(c.config, c.limits...)
		var field *policy.FieldError
		require.ErrorAs(t, err, &field)
		assert.Equal(t, "ral: inspect."+c.want, err.Error())
	}
}

// Promise: Its own server listens on loopback by default.
func TestListensOnLoopback(t *testing.T) {
	e := newEngine[string](t, engine.Config{Name: "api"})
	for _, addr := range []string{":0", "localhost:0", "127.0.0.1:0"} {
		l := must.Get(inspect.Listen(addr))
		assert.True(t, l.Addr().(*net.TCPAddr).IP.IsLoopback(), "%s: %v", addr, l.Addr())
		h := must.Get(inspect.New(inspect.Config{}, inspect.Limit[string]{Limiter: e}))
		ended := make(chan error, 1)
		go func() { ended <- h.Serve(l) }()
		c := &client{t: t, url: "http://" + l.Addr().String() + "/"}
		assert.Equal(t, http.StatusOK, c.send(http.MethodGet, "limits", "").status)
		assert.Equal(t, http.StatusForbidden, c.send(http.MethodGet, "limits", "", "Host", "evil.example").status)
		require.NoError(t, h.Close())
		assert.ErrorIs(t, <-ended, http.ErrServerClosed)
		require.NoError(t, h.Close(), "a second Close does nothing")
	}
	for _, addr := range []string{"localhost", "7725", "[::1", "localhost:x:y"} {
		_, err := inspect.Listen(addr)
		var field *policy.FieldError
		assert.ErrorAs(t, err, &field, addr)
	}
}

// A foreign name may resolve to the server's address. The listening host is a valid name.
func TestOwnServerChecksItsName(t *testing.T) {
	name := "localhost.localdomain"
	if _, err := net.LookupHost(name); err != nil {
		name = "ip6-localhost"
	}
	l, err := inspect.Listen(name + ":0")
	if err != nil {
		t.Skip("this machine has one name for itself alone:", err)
	}
	h := newHandler(t, inspect.Config{}, inspect.Limit[string]{Limiter: newEngine[string](t, engine.Config{Name: "api"})})
	go func() { _ = h.Serve(l) }()
	c := &client{t: t, url: "http://" + l.Addr().String() + "/"}
	for host, want := range map[string]int{name: http.StatusOK, "localhost:7725": http.StatusOK, "evil.example:7725": http.StatusForbidden} {
		assert.Equal(t, want, c.send(http.MethodGet, "limits", "", "Host", host).status, host)
	}
}

// Promise: The page lists the latest keys that passed a share of their limit, as hashes, and counts the warnings.
func TestWarnedKeysAreListed(t *testing.T) {
	e := newEngine[string](t, engine.Config{Name: "api", WarnAt: []float64{0.5, 0.8}})
	c, _ := operated(t, inspect.Limit[string]{Limiter: e})
	list := get[pagejson.List](c, "keys?limit=api&by=warned")
	require.Equal(t, pagejson.List{Limit: "api", By: "warned", Rows: []pagejson.Row{}}, list)
	require.True(t, e.Take("secret-key", 7).Allowed)
	require.True(t, e.Take("secret-key", 2).Allowed)
	list = get[pagejson.List](c, "keys?limit=api&by=warned")
	require.EqualValues(t, 2, list.Total)
	require.Len(t, list.Rows, 2)
	require.Equal(t, []any{0.8, int64(1), 0.5, int64(3)}, []any{list.Rows[0].Share, list.Rows[0].Remaining, list.Rows[1].Share, list.Rows[1].Remaining})
	require.NotEmpty(t, list.Rows[0].ID)
	require.Equal(t, list.Rows[0].ID, list.Rows[1].ID)
}

// Promise: The page tells what each tenant of shares used of its guarantee, borrowed, and was refused.
func TestTenantsOfSharesAreShown(t *testing.T) {
	shares := must.Get(engine.NewShares(engine.SharesConfig[string]{
		Config: engine.Config{Name: "upstream"}, Total: policy.Must(policy.Funnel(100, 1, time.Hour)), Tenants: []string{"gold", "silver"},
		Guarantee: func(string) policy.Policy { return policy.Must(policy.Funnel(10, 1, 4*time.Hour)) },
	}))
	require.True(t, shares.Take("gold", 10).Allowed)
	require.True(t, shares.Take("gold", 7).Borrowed)
	require.False(t, shares.Take("stranger", 80).Allowed)
	require.True(t, shares.Take("silver", 1).Allowed)
	c, _ := operated(t, inspect.Limit[string]{Name: "upstream", Limiter: shares})
	s := get[pagejson.Overview](c, "limits").Limits[0]
	require.Len(t, s.Tenants, 3)
	for i := range s.Tenants {
		assert.NotEmpty(t, s.Tenants[i].ID)
		s.Tenants[i].ID = ""
	}
	assert.Equal(t, []pagejson.Tenant{
		{Key: "stranger", Refused: 1}, {Key: "gold", Used: 10, Guarantee: 10, Borrowed: 1}, {Key: "silver", Used: 1, Guarantee: 10},
	}, s.Tenants)
	assert.EqualValues(t, 3, s.Figures["Admitted"])
	assert.EqualValues(t, 1, s.Figures["Borrowed"])
	assert.EqualValues(t, 18, s.Figures["Used"])
	assert.Len(t, c.explains("key", key("upstream", "gold")).Parts, 2)
	assert.EqualValues(t, 4, c.explains("change", charge("upstream", "silver", 3)).Parts[0].Used)
	assertFault(t, c.post("change", charge("upstream", "silver", -3)), http.StatusConflict, "cannot give units back")

	hashed := serve(t, newHandler(t, inspect.Config{}, inspect.Limit[string]{Name: "upstream", Limiter: shares}))
	assert.NotContains(t, string(hashed.send(http.MethodGet, "limits", "").body), "silver")
}
