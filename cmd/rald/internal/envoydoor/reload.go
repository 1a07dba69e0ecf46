package envoydoor

import "github.com/ral-limiter/ral/cmd/rald/internal/rules"

// Set puts rules in force in place of those that were, all at once. If it fails nothing changes.
// A request is decided by the rules at its beginning. Keys keep what they have used if their
// rule still has the same unit, or a limit of the same family.
func (s *Service) Set(set *rules.Set) error {
	commit, err := s.Prepare(set)
	if err == nil {
		commit()
	}
	return err
}

// Prepare is Set in two steps: the rules are in force when commit has been called. No other Set
// or Prepare may come between the two.
func (s *Service) Prepare(set *rules.Set) (commit func(), err error) {
	counts := map[string]*Counts{}
	if s.table.Load() != nil {
		for rule, of := range s.Counts() {
			counts[rule.Path] = of
		}
	}
	t, err := newTable(set, s.config, counts)
	if err != nil {
		return nil, err
	}
	return func() { s.table.Store(t) }, nil
}
