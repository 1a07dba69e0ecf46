package redisserver

import (
	"crypto/rand"
	"encoding/binary"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/ral-limiter/ral/cmd/rald/internal/families"
)

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
			for key, decision := range families.EngineOf(family).All() {
				if key, ok := shown(key); ok && decision.ResetAfter > 0 && !yield(key) {
					return
				}
			}
		}
	}
}
