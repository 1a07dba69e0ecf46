package main

import (
	"cmp"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/ral-limiter/ral/httplimit"
	"github.com/ral-limiter/ral/limits"
)

// second counts what a server answered in one second.
type second struct {
	At       int64 `json:"at"` // of Unix time
	Admitted int   `json:"admitted"`
	// Refused by the limit of the address, by that of the API key, and by a block.
	Address int `json:"address"`
	Key     int `json:"key"`
	Blocked int `json:"blocked"`
	// Decided otherwise by the candidate.
	WouldRefuse int `json:"wouldRefuse"`
	WouldAdmit  int `json:"wouldAdmit"`
}

// history has the last minute. The zero value is ready for use, by any number of goroutines.
type history struct {
	mu      sync.Mutex
	seconds [60]second // each at its time, modulo 60
}

// add adds to the counts of this second.
func (h *history) add(to func(*second)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now().Unix()
	s := &h.seconds[now%int64(len(h.seconds))]
	if s.At != now {
		*s = second{At: now}
	}
	to(s)
}

// last returns the seconds of the last minute in which there were requests, in order.
func (h *history) last() []second {
	h.mu.Lock()
	defer h.mu.Unlock()
	now, all := time.Now().Unix(), []second{}
	for _, s := range h.seconds {
		if s.At > now-int64(len(h.seconds)) {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b second) int { return cmp.Compare(a.At, b.At) })
	return all
}

// differs counts a difference of the candidate.
func (h *history) differs(_ netip.Addr, _ int64, live, _ limits.Answer) {
	h.add(func(now *second) {
		if live.Allowed {
			now.WouldRefuse++
		} else {
			now.WouldAdmit++
		}
	})
}

// count counts a verdict. A refusal is a block's if the address is blocked.
func (s *server) count(r *http.Request, v httplimit.Verdict) {
	s.seen.add(func(now *second) {
		switch {
		case !v.Refused():
			now.Admitted++
		case s.addresses.Blocked(s.client.Key(r)) > 0:
			now.Blocked++
		case v.Limit == "key":
			now.Key++
		default:
			now.Address++
		}
	})
}
