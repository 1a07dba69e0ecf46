package main

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"

	"github.com/coreos/go-systemd/v22/activation"
)

// systemd's names by flag
var socketNames = map[string]string{"-listen": "resp", "-envoy-listen": "envoy", "-check-listen": "check", "-admin": "admin", "-metrics": "metrics"}

// sockets are systemd's unused sockets, by name.
type sockets struct {
	mu  sync.Mutex
	all map[string]net.Listener
	err error
}

var passed = sync.OnceValue(func() *sockets {
	named, err := activation.ListenersWithNames()
	if err != nil {
		return &sockets{err: fmt.Errorf("the sockets that were passed: %w", err)}
	}
	return newSockets(named)
})

func newSockets(named map[string][]net.Listener) *sockets {
	s := &sockets{all: map[string]net.Listener{}}
	known := slices.Sorted(maps.Values(socketNames))
	for name, all := range named {
		switch {
		case !slices.Contains(known, name):
			s.err = errors.Join(s.err, fmt.Errorf("a socket that was passed is named %q: FileDescriptorName of %q is accepted", name, known))
		case len(all) != 1:
			s.err = errors.Join(s.err, fmt.Errorf("%d sockets of the name %s were passed: 1 is accepted", len(all), name))
		default:
			s.all[name] = all[0]
		}
	}
	return s
}

func (s *sockets) address(flag string) (net.Addr, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	listener := s.all[socketNames[flag]]
	if listener == nil {
		return nil, false
	}
	return listener.Addr(), true
}

// take returns a flag's socket for the caller, or nil.
func (s *sockets) take(flag string) net.Listener {
	s.mu.Lock()
	defer s.mu.Unlock()
	listener := s.all[socketNames[flag]]
	delete(s.all, socketNames[flag])
	return listener
}

// check returns the faults of the sockets. Clients of an unused socket would never be answered.
func (s *sockets) check() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.err
	for _, name := range slices.Sorted(maps.Keys(s.all)) {
		err = errors.Join(err, fmt.Errorf("a socket of the name %s was passed, and nothing is to be served there", name))
	}
	return err
}
