package redisserver

import (
	"crypto/rand"
	"encoding/binary"
	"iter"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ral-limiter/ral/cmd/rald/families"
	"github.com/ral-limiter/ral/cmd/rald/internal/configured"
	"github.com/ral-limiter/ral/cmd/rald/internal/resp"
)

// mark begins the keys of configured limits: see configured.Prefix. Any other key stands for itself,
// with one more mark if it begins with one, so that no key can be that of a configured limit.
const mark = configured.Mark

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
		for family := range c.server.config.Families.All() {
			here, err := family.Reset(c.background(), key)
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
	for family := range c.server.config.Families.All() {
		n += family.Engine().Len()
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
	found, next, ok := c.server.scans.next(cursor, min(count, mostScanned), c.server.config.Families)
	if !ok {
		c.out.Error("ERR there is no scan of that cursor any more: begin again with 0")
		return
	}
	if match != "" && match != "*" {
		all := found // the scan keeps it
		found = nil
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
	// mostPage is the number of bytes of keys after which a reply to SCAN ends. Replies are kept
	// for clients that ask for them again.
	mostPage = 256 << 10
	// mostScans is the most scans that are under way. A further one ends the one that was
	// used longest ago.
	mostScans = 64
	// scanIdle is the time after which a scan that was not continued may end.
	scanIdle = 5 * time.Minute
)

// scans are the scans that are under way. The zero scans has none.
type scans struct {
	mu    sync.Mutex
	all   []*scan // the one that was used longest ago is the first
	ended bool
}

// scan is a scan with its last page, which a client whose reply was lost asks for again.
type scan struct {
	more func() (string, bool)
	stop func()
	used time.Time
	page []string
	at   int64 // the cursor that page was asked for by
	next int64 // the cursor of the page after it, or 0 if there is none
}

// next returns up to n keys of the scan, and the cursor to go on with, or 0 at the end. A
// cursor of 0 begins a scan. The cursor of the last page returns that page again. ok is false if
// there is no such scan. The keys must not be changed.
func (s *scans) next(cursor, n int64, in *families.Families) (keys []string, next int64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil, 0, false
	}
	at := s.take(cursor)
	switch {
	case cursor == 0:
		at = &scan{}
		at.more, at.stop = iter.Pull(keysOf(in))
		at.turn(n)
	case at == nil:
		return nil, 0, false
	case cursor == at.next:
		at.turn(n)
	}
	if cursor != 0 || at.next != 0 { // a scan of one page is done
		s.put(at)
	}
	return at.page, at.next, true
}

// take removes the scan of that cursor, if there is one.
func (s *scans) take(cursor int64) *scan {
	for i, at := range s.all {
		if cursor != 0 && (cursor == at.next || cursor == at.at) {
			s.all = slices.Delete(s.all, i, i+1)
			return at
		}
	}
	return nil
}

// put keeps a scan, and ends those that nothing goes on with.
func (s *scans) put(at *scan) {
	at.used = time.Now()
	for len(s.all) >= mostScans || len(s.all) > 0 && at.used.Sub(s.all[0].used) > scanIdle {
		s.all[0].stop()
		s.all = slices.Delete(s.all, 0, 1)
	}
	s.all = append(s.all, at)
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

// turn goes on to the next page, of up to n keys.
func (at *scan) turn(n int64) {
	at.at, at.next, at.page = at.next, 0, nil
	for size := 0; int64(len(at.page)) < n && size < mostPage; {
		key, ok := at.more()
		if !ok {
			at.stop()
			return
		}
		at.page = append(at.page, key)
		size += len(key) + 16 // its header
	}
	at.next = newCursor()
}

// newCursor returns a cursor that no client can guess, so that none goes on with the scan of
// another. It is exact in the floating point numbers that some clients read it into.
func newCursor() int64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it never fails
	return int64(binary.LittleEndian.Uint64(b[:])>>12) + 1
}

// keysOf goes through the keys of all engines that are under no configured limit.
func keysOf(in *families.Families) iter.Seq[string] {
	return func(yield func(string) bool) {
		for family := range in.All() {
			for key := range family.Engine().All() {
				if key, ok := shown(key); ok && !yield(key) {
					return
				}
			}
		}
	}
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
