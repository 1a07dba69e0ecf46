package store

// Name is what Redis knows a key by.
func (s *Store) Name(l *Limit, key string) (string, error) { return s.name(l.prefix, key) }
