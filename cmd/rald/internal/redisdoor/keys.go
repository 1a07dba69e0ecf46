package redisdoor

import (
	"iter"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ral-limiter/ral/cmd/rald/internal/named"
	"github.com/ral-limiter/ral/cmd/rald/internal/resp"
	"github.com/ral-limiter/ral/cmd/rald/internal/spaces"
)

// mark begins the keys of configured limits: see named.Prefix. Any other key stands for itself,
// with one more mark if it begins with one, so that no key can be that of a configured limit.
const mark = named.Mark

// stored returns what a key that is under no configured limit is in an engine.
func stored(key []byte) string {
	if len(key) > 0 && key[0] == mark[0] {
		return mark + string(key)
	}
	return string(key)
}

// shown returns the key that a client sent, or false for one of a configured limit.
func shown(key string) (string, bool) {
	if !strings.HasPrefix(key, mark) {
		return key, true
	}
	return key[1:], strings.HasPrefix(key[1:], mark)
}

// del is DEL key ...: it forgets what the keys have used under every limit that is no
// configured one. RAL.RESET is for those. Over a fleet these are the limits that this server was
// asked about since it started.
func (c *conn) del(args [][]byte) {
	deleted := int64(0)
	for _, arg := range args[1:] {
		key, had := stored(arg), false
		for space := range c.server.config.Spaces.All() {
			here, err := space.Reset(c.calls(), key)
			if err != nil {
				c.out.Error("ERR " + err.Error())
				return
			}
			had = here || had
		}
		if had {
			deleted++
		}
	}
	c.out.Int(deleted)
}

// dbsize is DBSIZE: the keys of all limits.
func (c *conn) dbsize([][]byte) {
	if !c.hasKeys("DBSIZE") {
		return
	}
	n := 0
	for space := range c.server.config.Spaces.All() {
		n += space.Engine.Len()
	}
	c.out.Int(int64(n))
}

// scan is SCAN cursor [MATCH pattern] [COUNT n] [TYPE type]. It goes through the keys that DEL
// knows.
func (c *conn) scan(args [][]byte) {
	if !c.hasKeys("SCAN") {
		return
	}
	cursor, ok := resp.Int(args[1])
	if !ok || cursor < 0 {
		c.out.Error("ERR invalid cursor")
		return
	}
	count, match := int64(10), ""
	for rest := args[2:]; len(rest) > 0; rest = rest[2:] {
		if len(rest) == 1 {
			c.out.Error("ERR syntax error")
			return
		}
		switch strings.ToLower(string(rest[0])) {
		case "match":
			match = string(rest[1])
			if _, err := path.Match(match, ""); err != nil {
				c.out.Error("ERR the pattern " + quoted(rest[1]) + " is not complete")
				return
			}
		case "count":
			if count, ok = resp.Int(rest[1]); !ok || count < 1 {
				c.out.Error("ERR COUNT is " + quoted(rest[1]) + ": 1 or more is accepted")
				return
			}
		case "type":
			// All keys are of one type.
		default:
			c.out.Error("ERR syntax error")
			return
		}
	}
	found, next, ok := c.server.scans.next(cursor, min(count, mostScanned), c.server.config.Spaces)
	if !ok {
		c.out.Error("ERR there is no scan of that cursor any more: begin again with 0")
		return
	}
	if match != "" && match != "*" {
		all := found
		found = found[:0]
		for _, key := range all {
			if ok, _ := path.Match(unslashed(match), unslashed(key)); ok {
				found = append(found, key)
			}
		}
	}
	c.out.Array(2)
	c.out.Bulk(itoa(next))
	c.out.Array(len(found))
	for _, key := range found {
		c.out.Bulk(key)
	}
}

// unslashed returns a text in which a slash is a character like others, as it is in a key.
func unslashed(text string) string { return strings.ReplaceAll(text, "/", "\x01") }

const (
	// mostScanned is the most keys of one reply to SCAN.
	mostScanned = 10_000
	// mostScans is the most scans that are under way. A further one ends the one that was
	// used longest ago.
	mostScans = 64
	// scanIdle is the time after which a scan that was not continued may end.
	scanIdle = 5 * time.Minute
)

// scans are the scans that are under way. The zero scans has none.
type scans struct {
	mu    sync.Mutex
	last  int64
	all   map[int64]*scan
	ended bool
}

type scan struct {
	next func() (string, bool)
	stop func()
	used time.Time
}

// next returns up to n keys of the scan, and the cursor to go on with, or 0 at the end. A
// cursor of 0 begins a scan. ok is false if there is no such scan.
func (s *scans) next(cursor, n int64, in *spaces.Spaces) (keys []string, next int64, ok bool) {
	at := s.take(cursor, in)
	if at == nil {
		return nil, 0, false
	}
	for int64(len(keys)) < n {
		key, ok := at.next()
		if !ok {
			at.stop()
			return keys, 0, true
		}
		keys = append(keys, key)
	}
	return keys, s.put(at), true
}

// take removes a scan, or makes one.
func (s *scans) take(cursor int64, in *spaces.Spaces) *scan {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ended:
		return nil
	case cursor != 0:
		at := s.all[cursor]
		delete(s.all, cursor)
		return at
	}
	next, stop := iter.Pull(keysOf(in))
	return &scan{next: next, stop: stop}
}

// put keeps a scan under a new cursor, and ends those that nothing goes on with.
func (s *scans) put(at *scan) (cursor int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		at.stop()
		return 0
	}
	now := time.Now()
	for cursor, other := range s.all {
		if now.Sub(other.used) > scanIdle {
			other.stop()
			delete(s.all, cursor)
		}
	}
	if len(s.all) >= mostScans {
		oldest := slices.Min(slices.Collect(maps.Keys(s.all))) // cursors are given in order
		s.all[oldest].stop()
		delete(s.all, oldest)
	}
	if s.all == nil {
		s.all = map[int64]*scan{}
	}
	s.last++
	at.used = now
	s.all[s.last] = at
	return s.last
}

// end ends all scans.
func (s *scans) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	for _, at := range s.all {
		at.stop()
	}
	s.all = nil
}

// keysOf goes through the keys of all engines that are under no configured limit.
func keysOf(in *spaces.Spaces) iter.Seq[string] {
	return func(yield func(string) bool) {
		for space := range in.All() {
			for key := range space.Engine.All() {
				if key, ok := shown(key); ok && !yield(key) {
					return
				}
			}
		}
	}
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
