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

	"github.com/ral-limiter/ral/cmd/rald/internal/configured"
	"github.com/ral-limiter/ral/cmd/rald/internal/families"
	"github.com/ral-limiter/ral/cmd/rald/internal/resp"
	"github.com/ral-limiter/ral/internal/adapter/clientaddr"
	"github.com/ral-limiter/ral/internal/core/whole"
)

// mark begins the keys of configured limits: see configured.Prefix. Any other key is itself, with
// another mark before a leading mark: no key can be a configured limit's.
const mark = configured.Mark

// maxKey bounds clients' keys that stay in memory, in bytes.
const maxKey = 512

// bounded returns a client's key, or its hash if it is above maxKey. The hash is a key that clients
// may send, too.
func bounded(key []byte) []byte {
	if len(key) > maxKey {
		return []byte(clientaddr.Hashed(string(key)))
	}
	return key
}

// stored returns an engine's key for a key under no configured limit.
func stored(key []byte) string {
	key = bounded(key)
	if len(key) > 0 && key[0] == mark[0] {
		return mark + string(key)
	}
	return string(key)
}

// shown returns the client's key, or false for a configured limit's.
func shown(key string) (string, bool) {
	if !strings.HasPrefix(key, mark) {
		return key, true
	}
	return key[1:], strings.HasPrefix(key[1:], mark)
}

// del is DEL key ...: it forgets the keys' usage under every limit that is not configured
// (RAL.RESET is for those). Over a fleet it knows the limits that this server was asked about since
// its start.
func (c *conn) del(args [][]byte) {
	deleted := int64(0)
	for _, arg := range args[1:] {
		key, had := stored(arg), false
		for family := range c.server.config.Families.All() {
			here, err := family.Reset(c.background(), key)
			if c.fail(err) {
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

// drains returns the time until the key owes nothing, 0 if it owes nothing now, under the limits that
// DEL knows. It writes an error.
func (c *conn) drains(key []byte) (after time.Duration) {
	for family := range c.server.config.Families.All() {
		decision, err := family.TakeWith(c.background(), family.Limit(), stored(key), 0)
		if c.fail(err) {
			break
		}
		after = max(after, decision.ResetAfter)
	}
	return after
}

// exists is EXISTS key ...: how many of the keys owe.
func (c *conn) exists(args [][]byte) {
	n := int64(0)
	for _, key := range args[1:] {
		if c.drains(key) > 0 {
			n++
		}
		if c.failed() {
			return
		}
	}
	c.out.Int(n)
}

// ttl is TTL key: the seconds until the key owes nothing, -2 if it owes nothing now.
func (c *conn) ttl(args [][]byte) { c.timeToLive(args[1], time.Second) }

func (c *conn) pttl(args [][]byte) { c.timeToLive(args[1], time.Millisecond) }

func (c *conn) timeToLive(key []byte, unit time.Duration) {
	switch d := c.drains(key); {
	case c.failed():
	case d == 0:
		c.out.Int(-2)
	default:
		c.out.Int(whole.UntilReset(d, unit))
	}
}

// kind is TYPE key.
func (c *conn) kind(args [][]byte) {
	switch d := c.drains(args[1]); {
	case c.failed():
	case d == 0:
		c.out.Status("none")
	default:
		c.out.Status("string")
	}
}

// dbsize is DBSIZE: how many keys owe, under configured limits also. It looks at each, since entries
// stay for a time after DEL, and after their keys owe nothing.
func (c *conn) dbsize([][]byte) {
	if !c.hasKeys("DBSIZE") {
		return
	}
	n := int64(0)
	for family := range c.server.config.Families.All() {
		for _, d := range families.EngineOf(family).All() {
			if d.ResetAfter > 0 {
				n++
			}
		}
	}
	c.out.Int(n)
}

// scan is SCAN cursor [MATCH pattern] [COUNT n] [TYPE type], over the keys that owe.
func (c *conn) scan(args [][]byte) {
	if !c.hasKeys("SCAN") {
		return
	}
	cursor, ok := resp.Int(args[1])
	if !ok || cursor < 0 {
		c.out.Error("ERR invalid cursor")
		return
	}
	count, match, kind := int64(10), "", "string"
	for rest := args[2:]; len(rest) > 0; rest = rest[2:] {
		switch option := strings.ToLower(string(rest[0])); {
		case len(rest) > 1 && option == "match":
			match = string(rest[1])
			if _, err := path.Match(match, ""); err != nil {
				c.out.Error("ERR the pattern " + quoted(rest[1]) + " is not complete")
			}
		case len(rest) > 1 && option == "count":
			if count, ok = resp.Int(rest[1]); !ok || count < 1 {
				c.out.Error("ERR COUNT is " + quoted(rest[1]) + ": 1 or more is accepted")
			}
		case len(rest) > 1 && option == "type":
			kind = strings.ToLower(string(rest[1]))
		default:
			c.out.Error("ERR syntax error")
		}
		if c.failed() {
			return
		}
	}
	found, next, ok := c.server.scans.next(cursor, min(count, maxScanned), c.server.config.Families)
	if !ok {
		c.out.Error("ERR there is no scan of that cursor any more: begin again with 0")
		return
	}
	if kind != "string" {
		// TYPE tells no other type.
		found = nil
	}
	if match != "" && match != "*" {
		// The scan keeps the keys.
		found = slices.DeleteFunc(slices.Clone(found), func(key string) bool {
			ok, _ := path.Match(unslashed(match), unslashed(key))
			return !ok
		})
	}
	c.out.Array(2)
	c.out.Bulk(itoa(next))
	c.out.Array(len(found))
	for _, key := range found {
		c.out.Bulk(key)
	}
}

// unslashed makes slashes ordinary characters, as in keys.
func unslashed(text string) string { return strings.ReplaceAll(text, "/", "\x01") }

const (
	// maxScanned bounds the keys of a reply to SCAN.
	maxScanned = 10_000
	// After maxPage bytes of keys a reply to SCAN ends. The keys are kept for repeats.
	maxPage = 256 << 10
	// maxScans bounds the scans under way. Another scan ends the least recently used one.
	maxScans = 64
	// After scanIdle a scan may end.
	scanIdle = 5 * time.Minute
)

type scans struct {
	mu sync.Mutex
	// all has the least recently used scan first.
	all   []*scan
	ended bool
}

// scan is a scan with its last page, which a client may request again after a lost reply.
type scan struct {
	more func() (string, bool)
	stop func()
	used time.Time
	page []string
	// cursor is the cursor for page.
	cursor int64
	// next is the cursor after it, or 0 for none.
	next int64
}

// next returns up to n keys of a scan, and the next cursor, 0 at the end. Cursor 0 begins a scan;
// the last page's returns that page again. ok is false without such a scan. Do not change the keys.
func (s *scans) next(cursor, n int64, in *families.Families) (keys []string, next int64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil, 0, false
	}
	found := s.take(cursor)
	switch {
	case cursor == 0:
		found = &scan{}
		found.more, found.stop = iter.Pull(keysOf(in))
		found.turn(n)
	case found == nil:
		return nil, 0, false
	case cursor == found.next:
		found.turn(n)
	}
	// A scan of a single page is done.
	if cursor != 0 || found.next != 0 {
		s.put(found)
	}
	return found.page, found.next, true
}

func (s *scans) take(cursor int64) *scan {
	for i, scan := range s.all {
		if cursor != 0 && (cursor == scan.next || cursor == scan.cursor) {
			s.all = slices.Delete(s.all, i, i+1)
			return scan
		}
	}
	return nil
}

// put keeps a scan, and ends idle scans.
func (s *scans) put(scan *scan) {
	scan.used = time.Now()
	for len(s.all) >= maxScans || len(s.all) > 0 && scan.used.Sub(s.all[0].used) > scanIdle {
		s.all[0].stop()
		s.all = slices.Delete(s.all, 0, 1)
	}
	s.all = append(s.all, scan)
}

func (s *scans) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	for _, at := range s.all {
		at.stop()
	}
	s.all = nil
}

func (s *scan) turn(n int64) {
	s.cursor, s.next, s.page = s.next, 0, nil
	for size := 0; int64(len(s.page)) < n && size < maxPage; {
		key, ok := s.more()
		if !ok {
			s.stop()
			return
		}
		s.page = append(s.page, key)
		// 16 bytes are for the header of a key.
		size += len(key) + 16
	}
	s.next = newCursor()
}

// newCursor returns a cursor that no client can guess, to continue another's scan. It is exact in
// the floating point numbers of some clients.
func newCursor() int64 {
	var b [8]byte
	// The read never fails.
	_, _ = rand.Read(b[:])
	return int64(binary.LittleEndian.Uint64(b[:])>>12) + 1
}

func keysOf(in *families.Families) iter.Seq[string] {
	return func(yield func(string) bool) {
		for family := range in.All() {
			for key, d := range families.EngineOf(family).All() {
				if key, ok := shown(key); ok && d.ResetAfter > 0 && !yield(key) {
					return
				}
			}
		}
	}
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
