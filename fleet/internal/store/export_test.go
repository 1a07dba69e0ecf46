package store

// Name is what Redis knows a key by.
func (s *Store) Name(l *Limit, key string) (string, error) { return s.name(l.prefix, key) }

// Corrupt has the limit's scripts reply something else.
func (s *Store) Corrupt(l *Limit, reply string) {
	l.take = s.newScript("return " + reply)
	l.lease = l.take
}
