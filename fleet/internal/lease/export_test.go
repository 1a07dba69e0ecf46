package lease

import (
	"context"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// newLeases is New for a single server, which keeps keys as they are.
func newLeases(config Config) (*Leases, error) {
	if config.Name == nil {
		config.Name = func(key string) string { return key }
	}
	if config.Servers == nil {
		config.Servers = func() int { return 1 }
	}
	return New(config)
}

// Kill ends the leases like the death of the server: nothing is given back.
func (l *Leases) Kill() {
	l.abort()
	l.once.Do(func() { l.shutDown(context.Background(), false) })
	_ = l.words.Close()
}

// Take tries, and asks the bank if it must.
func (l *Leases) Take(key string, n int64, budget time.Duration, done <-chan struct{}) (policy.Decision, error) {
	if d, ok := l.Try(key, n); ok {
		return d, nil
	}
	return l.Ask(key, n, budget, done)
}

func (l *Leases) Limit() int64 { return l.plan.Limit() }
