package store

// Name is what Redis knows a key by.
func (s *Store) Name(l *Limit, key string) (string, error) { return s.name(l.prefix, key) }

// Corrupt has the limit's scripts reply something else: the word, the time, and what was
// taken, each in its order.
func (s *Store) Corrupt(l *Limit, reply string) {
	l.lease, l.back = s.newScript("return "+reply), s.newScript("return "+reply)
	l.take = s.newScript("local r = "+reply+"\n", "if type(r) == 'table' then r = {r[2], r[1], r[3]} end\n", "return r\n")
}
