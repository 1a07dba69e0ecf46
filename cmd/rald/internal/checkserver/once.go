package checkserver

import (
	"maps"
	"net/http"
	"sync"
	"time"
)

const (
	// An answer is remembered for onceFor, or for up to twice as long.
	onceFor = 5 * time.Second
	// maxOnce bounds the answers. With more they are forgotten sooner.
	maxOnce = 1 << 15
)

// once remembers the header fields of requests that passed, by the ids that the proxy gives them.
// nginx asks again after an internal redirect: of index, try_files or error_page. The zero once is
// ready to use.
type once struct {
	mu sync.Mutex
	// began is when recent began.
	began        time.Time
	recent, past map[string]http.Header
}

// find returns the fields of an earlier answer.
func (o *once) find(id string) (fields http.Header, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.turn()
	if fields, ok = o.recent[id]; !ok {
		fields, ok = o.past[id]
	}
	return fields, ok
}

func (o *once) add(id string, fields http.Header) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.turn()
	o.recent[id] = maps.Clone(fields)
}

func (o *once) turn() {
	now := time.Now()
	if age := now.Sub(o.began); age >= onceFor || len(o.recent) >= maxOnce/2 {
		o.past = o.recent
		if age >= 2*onceFor {
			o.past = nil
		}
		o.recent, o.began = map[string]http.Header{}, now
	}
}

// id returns a request's id, "" if the rules need none. A client cannot repeat another request's.
func (rules *Rules) id(asked, original *http.Request) (id string, err error) {
	if rules.once == "" {
		return "", nil
	}
	if id, err = single(asked, rules.once); err != nil {
		return "", err
	}
	return id + " " + original.Method + " " + original.Host + original.URL.RequestURI(), nil
}
