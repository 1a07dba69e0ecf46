package httplimit

import (
	"fmt"
	"net/http"
	"sync"

	"github.com/ral-limiter/ral/cell"
	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/policy"
)

// Limit is an engine that limits requests, and by what key. Limiter and Key are required.
type Limit[K comparable] struct {
	// Name tells clients which limit is spoken of. It must be printable ASCII. The
	// default is "default"; of several limits each needs a name of its own.
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
	// bind checks the limit, and gives it its name, if it has none.
	bind(name string) (gate, error)
}

// gate is a limit with the type of its keys out of sight.
type gate interface {
	title() string
	stats() engine.Stats
	// alone takes n units by this limit only. held is nil unless keep asks for it and
	// something was taken.
	alone(r *http.Request, n int64, keep bool, o *Options) (v ruling, held charge)
	// together names the request's key for cell.TakeAll. claim is nil if the request
	// has none.
	together(r *http.Request) (claim cell.Claim, held charge, of quota)
	whenNoKey() WhenNoKey
}

// charge is what was taken from a key, to be set right when its true cost is known.
type charge interface {
	// settle gives n of the units back that were taken, or charges -n more.
	settle(taken, n int64)
}

// bound is a Limit that has been checked.
type bound[K comparable] struct {
	Limit[K]
	asked  sync.Once
	delays bool // calls may have to wait
}

func (l Limit[K]) bind(name string) (gate, error) {
	const of = "httplimit.Limit"
	if l.Name == "" {
		l.Name = name
	}
	bad := func(field string, value any, want string) error {
		return &policy.FieldError{Of: of, Field: field, Value: value, Want: want}
	}
	for _, c := range []byte(l.Name) {
		if c < ' ' || c > '~' {
			return nil, bad("Name", fmt.Sprintf("%q", l.Name), "printable ASCII")
		}
	}
	switch {
	case len(l.Name) > longestName:
		return nil, bad("Name", fmt.Sprintf("%d bytes long", len(l.Name)), "64 bytes at the most")
	case l.Limiter == nil:
		return nil, bad("Limiter", "nil", "an engine, such as engine.New returns")
	case l.Key == nil:
		return nil, bad("Key", "nil", "a key function, such as httplimit.ByAddr")
	case l.WhenNoKey < Refuse || l.WhenNoKey > Share:
		return nil, bad("WhenNoKey", int(l.WhenNoKey), "Refuse, Skip or Share")
	}
	return &bound[K]{Limit: l}, nil
}

const longestName = 64

func (l *bound[K]) title() string        { return l.Name }
func (l *bound[K]) stats() engine.Stats  { return l.Limiter.Stats() }
func (l *bound[K]) whenNoKey() WhenNoKey { return l.WhenNoKey }

// delays tells whether calls under a policy may have to wait although they do not ask to,
// as those of a policy.Queue do.
func delays(p policy.Policy) bool {
	word, _ := p.Take(0, 1, 1, 0)
	_, d := p.Take(word, 1, 1, 0)
	return d.Wait > 0
}

// find returns the request's key. ok is false if it has none and there is no place for
// those that have none.
func (l *bound[K]) find(r *http.Request) (key K, ok bool) {
	var none K
	key = l.Key(r)
	return key, key != none || l.WhenNoKey == Share
}

func (l *bound[K]) together(r *http.Request) (cell.Claim, charge, quota) {
	key, ok := l.find(r)
	if !ok {
		return nil, nil, quota{}
	}
	return l.Limiter.Claim(key), &taken[K]{limiter: l.Limiter, key: key}, l.quota(key, 0)
}

func (l *bound[K]) alone(r *http.Request, n int64, keep bool, o *Options) (ruling, charge) {
	key, ok := l.find(r)
	if !ok {
		return keyless(l.WhenNoKey, l.Name, n), nil
	}
	// All limits of an engine are of one family, so that the first key tells. The zero
	// one is nobody's, for engine.PolicyFor too.
	l.asked.Do(func() {
		holds, _ := l.Limiter.Limit(key)
		l.delays = delays(holds)
	})
	if keep || l.delays {
		return l.reserve(r, key, n, keep, o)
	}
	v := ruling{Verdict: Verdict{Limit: l.Name, Cost: n}}
	v.Decision = l.Limiter.Take(key, n)
	if !v.Decision.Allowed {
		if !o.Shadow && v.Decision.RetryAfter <= o.WaitUpTo {
			l.wait(r, &v, key, n, o.WaitUpTo)
		}
		v.conclude()
	}
	v.quota = l.quota(key, v.Decision.Limit)
	return v, nil
}

// reserve takes n units so that they can be given back as if they had not been taken.
func (l *bound[K]) reserve(r *http.Request, key K, n int64, keep bool, o *Options) (ruling, charge) {
	v := ruling{Verdict: Verdict{Limit: l.Name, Cost: n}}
	reserved := l.Limiter.Reserve(key, n, 0)
	v.Decision = reserved.Decision
	switch d := reserved.Decision; {
	case o.Shadow:
	case d.Allowed && d.Wait > 0:
		l.takeTurn(r, &v, key, &reserved, o.WaitUpTo)
	case !d.Allowed && d.RetryAfter <= o.WaitUpTo:
		reserved = l.wait(r, &v, key, n, o.WaitUpTo)
	}
	v.conclude()
	v.quota = l.quota(key, v.Decision.Limit)
	if !keep || v.Reason != Admitted {
		return v, nil
	}
	return v, &taken[K]{limiter: l.Limiter, key: key, reserved: reserved}
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
	holds, _ := l.Limiter.Limit(key)
	if windowed, ok := holds.(policy.Windowed); ok {
		q.window = windowed.Window()
	}
	return q
}

// taken implements charge.
type taken[K comparable] struct {
	limiter  *engine.Engine[K]
	key      K
	reserved cell.Reservation[K]
}

func (t *taken[K]) settle(all, n int64) {
	_, own := t.limiter.Limit(t.key)
	switch {
	case n == 0:
	case n == all && own && t.reserved.Allowed:
		t.reserved.Cancel() // which knows when they were taken
	default:
		t.limiter.Refund(t.key, n)
	}
}
