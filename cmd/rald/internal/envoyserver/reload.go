package envoyserver

import (
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/ral-limiter/ral/cmd/rald/internal/families"
	"github.com/ral-limiter/ral/cmd/rald/internal/rules"
)

// Prepare returns a function that puts rules in force, all at once. A request keeps the rules at
// its beginning. Keys keep their usage if their rule still has the same unit, or a limit of the
// same family. Release must always follow, before the next Prepare.
func (s *Service) Prepare(set *rules.Set) (commit func(), err error) {
	counts := map[string]*Counts{}
	if s.table.Load() != nil {
		for rule, of := range s.Counts() {
			counts[rule.Path] = of
		}
	}
	table, err := newTable(set, s.config, counts)
	if err != nil {
		return nil, err
	}
	return func() {
		if old := s.table.Swap(table); old != nil {
			s.replaced = append(s.replaced, old)
		}
		s.tellHealth(healthpb.HealthCheckResponse_SERVING)
	}, nil
}

// Release lets go of the engines that no rule in force needs, once the requests under earlier rules
// have ended. Their keys still owe if a rule needs them again. The error is an ending engine's.
func (s *Service) Release() error {
	for _, t := range s.replaced {
		t.calls.Lock()
		t.calls.Unlock() //nolint:staticcheck // no request holds it any more
	}
	s.replaced = nil
	inForce := map[families.Family]bool{}
	if t := s.table.Load(); t != nil {
		for _, family := range t.families {
			inForce[family] = true
		}
	}
	return s.config.Families.Release(inForce, nil)
}

// begin returns the rules in force. The request must call done when it has been decided.
func (s *Service) begin() (t *table, done func()) {
	for {
		table := s.table.Load()
		table.calls.RLock()
		if s.table.Load() == table {
			return table, table.calls.RUnlock
		}
		// The table was replaced, and its engines may have ended.
		table.calls.RUnlock()
	}
}
