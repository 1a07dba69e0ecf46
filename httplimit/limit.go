package httplimit

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"sync/atomic"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/policy"
)

// Limit is an engine that limits requests, and by what key. Limiter and Key are required.
type Limit[K comparable] struct {
	// Name tells clients which limit is spoken of. It must be printable ASCII, and 64 bytes
	// at the most. The default is Options.Name; of several limits each needs a name of its
	// own.
	Name string
	// Limiter decides. Several limits may have the same one.
	Limiter *engine.Engine[K]
	// Key finds who is limited. The zero value of K is no key.
	Key func(r *http.Request) K
	// WhenNoKey says what becomes of a request without a key.
	WhenNoKey WhenNoKey
}

// AnyLimit is a [Limit] of any type of key.
type AnyLimit interface {
	// bind checks the limit, and gives it its name, if it has none. bad makes an error of
	// what is wrong with a field.
	bind(name string, bad fault) (gate, error)
}

type fault = func(field string, value any, want string) error

// gate is a limit with the type of its keys out of sight.
type gate interface {
	title() string
	stats() engine.Stats
	// alone takes n units by this limit only. held is nil unless keep asks for it and
	// something was taken.
	alone(r *http.Request, n int64, keep bool, o *Options) (v ruling, held charge)
	// together names n units of the request's key for engine.TakeAll. ok is false if the
	// request has none. key is nil unless keep asks for it.
	together(r *http.Request, n int64, keep bool) (claim engine.Claim, key debtor, of quota, ok bool)
	whenNoKey() WhenNoKey
	// fingerprint tells keys apart for people, without telling them.
	fingerprint(r *http.Request) string
}

// charge is what was taken, to be set right when its true cost is known.
type charge interface {
	// settle has actual units charged in place of those that were taken.
	settle(taken, actual int64)
}

// debtor is a key that may be charged more.
type debtor interface{ owe(n int64) }

// bound is a Limit that has been checked.
type bound[K comparable] struct {
	Limit[K]
	delays atomic.Pointer[bool] // calls may have to wait; nil until the first key
}

func (l Limit[K]) bind(name string, bad fault) (gate, error) {
	if l.Name == "" {
		l.Name = name
	}
	switch want := wrongName(l.Name); {
	case want != "":
		return nil, bad("Name", fmt.Sprintf("%.80q", l.Name), want)
	case l.Limiter == nil:
		return nil, bad("Limiter", "nil", "an engine, such as engine.New returns")
	case l.Key == nil:
		return nil, bad("Key", "nil", "a key function, such as httplimit.ByAddr; ByHeader is nil for what is no name of a header field")
	case l.WhenNoKey < Refuse || l.WhenNoKey > Share:
		return nil, bad("WhenNoKey", int(l.WhenNoKey), "Refuse, Skip or Share")
	}
	return &bound[K]{Limit: l}, nil
}

const longestName = 64

// wrongName returns what a name should be that is none, or "".
func wrongName(name string) (want string) {
	for _, c := range []byte(name) {
		if c < ' ' || c > '~' {
			return "printable ASCII"
		}
	}
	if len(name) > longestName {
		return "64 bytes at the most"
	}
	return ""
}

func (l *bound[K]) title() string        { return l.Name }
func (l *bound[K]) stats() engine.Stats  { return l.Limiter.Stats() }
func (l *bound[K]) whenNoKey() WhenNoKey { return l.WhenNoKey }

// find returns the request's key. ok is false if it has none and there is no place for
// those that have none.
func (l *bound[K]) find(r *http.Request) (key K, ok bool) {
	var none K
	key = l.Key(r)
	return key, key != none || l.WhenNoKey == Share
}

func (l *bound[K]) together(r *http.Request, n int64, keep bool) (engine.Claim, debtor, quota, bool) {
	key, ok := l.find(r)
	if !ok {
		return engine.Claim{}, nil, quota{}, false
	}
	var owes debtor
	if keep {
		owes = &account[K]{l.Limiter, key}
	}
	return l.Limiter.Claim(key, n), owes, l.quota(key, 0), true
}

func (l *bound[K]) fingerprint(r *http.Request) string {
	key, ok := l.find(r)
	if !ok {
		return ""
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%v", key))
	return hex.EncodeToString(sum[:6])
}

// mayDelay tells whether calls may have to wait although they do not ask to. All limits
// of an engine are of one family, so that the first key tells. The zero one is nobody's,
// for engine.PolicyFor too, which may panic.
func (l *bound[K]) mayDelay(key K) bool {
	if known := l.delays.Load(); known != nil {
		return *known
	}
	holds := l.Limiter.LimitFor(key)
	may := holds.Delays()
	l.delays.Store(&may)
	return may
}

func (l *bound[K]) alone(r *http.Request, n int64, keep bool, o *Options) (ruling, charge) {
	key, ok := l.find(r)
	if !ok {
		return keyless(l.WhenNoKey, l.Name, n), nil
	}
	v := ruling{Verdict: Verdict{Limit: l.Name, Cost: n}}
	var reserved engine.Reservation[K]
	switch {
	case l.mayDelay(key), o.Shadow && o.WaitUpTo > 0:
		reserved = l.Limiter.Reserve(key, n, o.WaitUpTo)
		if v.Decision = reserved.Decision; reserved.Allowed && !takeTurn(r, &v, reserved.Wait, o.Shadow) {
			reserved.Cancel()
		}
	case o.WaitUpTo > 0:
		reserved = l.acquire(r, &v, key, n, o.WaitUpTo)
	case keep:
		reserved = l.Limiter.Reserve(key, n, 0)
		v.Decision = reserved.Decision
	default:
		v.Decision = l.Limiter.Take(key, n)
	}
	v.conclude()
	v.quota = l.quota(key, v.Decision.Limit)
	if !keep || v.Reason != Admitted {
		return v, nil
	}
	return v, &taken[K]{account[K]{l.Limiter, key}, reserved}
}

// conclude gives the reason of what the only limit has decided in the end.
func (v *ruling) conclude() {
	if v.Reason != Cancelled && !v.Decision.Allowed {
		v.Reason, v.RetryAfter, v.violated = OverLimit, v.Decision.RetryAfter, 1
	}
}

// keyless is the ruling on a request that has no key for a limit.
func keyless(when WhenNoKey, name string, n int64) ruling {
	if when == Skip {
		return ruling{Verdict: Verdict{Reason: Exempt, Cost: n}}
	}
	return ruling{Verdict: Verdict{Reason: Keyless, Limit: name, Cost: n}}
}

// quota is what the key's limit is.
func (l *bound[K]) quota(key K, most int64) quota {
	q := quota{applies: true, most: most}
	holds := l.Limiter.LimitFor(key)
	if windowed, ok := holds.(policy.Windowed); ok {
		q.window = windowed.Window()
	}
	return q
}

// account implements debtor.
type account[K comparable] struct {
	limiter *engine.Engine[K]
	key     K
}

func (a *account[K]) owe(n int64) { a.limiter.Refund(a.key, -n) }

// taken implements charge for one limit.
type taken[K comparable] struct {
	account[K]
	reserved engine.Reservation[K]
}

func (t *taken[K]) settle(all, actual int64) {
	if actual > all {
		t.owe(actual - all)
		return
	}
	t.reserved.Keep(actual) // which knows where they were taken
}
