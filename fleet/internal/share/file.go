package share

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/ral-limiter/ral/fleet/internal/share/part"
	"github.com/ral-limiter/ral/internal/core/statefile"
	"github.com/ral-limiter/ral/policy"
)

// ErrForeign reports a file of another limit.
var ErrForeign = errors.New("the file is of another limit")

// lasting bounds the instants of a file, at half the time of words. An older file goes into a new
// share.
const lasting = 366 * 24 * time.Hour

// loaded is an entry of a file. Without from, the share of its word, the units count from now on.
type loaded struct {
	hash  hash
	entry entry
	from  *part.Part
}

// Changed reports whether Save has something new to write.
func (l *Local) Changed() bool { return l.changed.Load() }

// Save writes the keys with units that count and were not Paid, and their shares. of names the
// limit. If it misses units admitted meanwhile, Changed is true. It must not run twice at once.
func (l *Local) Save(w io.Writer, limit string) (err error) {
	// The flag is cleared before the entries are read.
	l.changed.Store(false)
	defer func() {
		if err != nil {
			l.changed.Store(true)
		}
	}()
	to, err := statefile.NewWriter(w, statefile.Header{
		// The wall clock may have been set since the share began.
		Epoch: time.Now().Add(-time.Duration(l.now())), Limit: l.whole.Load().Policy.String(), Codec: codec(limit),
	})
	if err != nil {
		return err
	}
	var some []loaded
	var key []byte
	for i := range l.shards {
		some = l.shards[i].unpaid(l.now(), some[:0])
		for _, loaded := range some {
			key = appendKey(key[:0], loaded)
			if err := to.Add(key, loaded.entry.Word, 0); err != nil {
				return err
			}
		}
	}
	return to.Close(l.now())
}

// codec names the limit of a file, and the form of its keys.
func codec(of string) string { return "share 1 of " + of }

func (s *shard) unpaid(now policy.Instant, some []loaded) []loaded {
	s.mu.Lock()
	defer s.mu.Unlock()
	some = append(some, s.loaded...)
	for hash, entry := range s.entries {
		if entry.Unpaid = s.part.Owed(entry.State, now); entry.Unpaid > 0 {
			some = append(some, loaded{hash, entry, s.part})
		}
	}
	return some
}

// appendKey appends the number of servers (0: no word), the units to charge, unknownSince and
// the name.
func appendKey(dst []byte, loaded loaded) []byte {
	servers := 0
	if loaded.from != nil {
		servers = loaded.from.Servers
	}
	dst = binary.AppendUvarint(dst, uint64(servers))
	dst = binary.AppendUvarint(dst, uint64(loaded.entry.Unpaid))
	dst = binary.AppendVarint(dst, int64(loaded.entry.Unknown))
	return append(dst, loaded.entry.name...)
}

func cutKey(key []byte) (servers int, e entry, err error) {
	divided, n := binary.Uvarint(key)
	if n <= 0 || divided > math.MaxInt32 {
		return 0, e, errKey
	}
	units, m := binary.Uvarint(key[n:])
	if m <= 0 || units == 0 || units > math.MaxInt64 {
		return 0, e, errKey
	}
	n += m
	since, m := binary.Varint(key[n:])
	if m <= 0 || len(key) == n+m {
		return 0, e, errKey
	}
	return int(divided), entry{part.State{Unpaid: int64(units), Unknown: part.UnknownSince(since)}, string(key[n+m:])}, nil
}

var errKey = fmt.Errorf("share: %w: a key does not name its uncharged units", statefile.ErrCorrupt)

// Load reads what Save wrote, before any other use of the share. The error is ErrForeign if of
// differs. The share continues: its clock advances by the wall time since. If Config has another
// limit, or the file counts from more than a year ago, the units to charge count from now on,
// unless they must have drained. Keys without room are Lapsed. A failed Load reads nothing.
func (l *Local) Load(reader io.Reader, limit string) error {
	from, err := statefile.NewReader(reader)
	if err != nil {
		return err
	}
	header := from.Header()
	if header.Codec != codec(limit) {
		return fmt.Errorf("share: %w: it is of %q, want %q", ErrForeign, header.Codec, codec(limit))
	}
	parts := map[int]*part.Part{0: nil}
	var all []loaded
	lapsed, room := int64(0), l.shards[0].maxEntries*len(l.shards)
	for {
		record, err := from.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		servers, entry, err := cutKey(record.Key)
		if err != nil {
			return err
		}
		if len(all) == room {
			lapsed += entry.Unpaid
			continue
		}
		own, known := parts[servers]
		if !known {
			if own, err = part.New(l.whole.Load(), servers, header.Epoch); err != nil {
				return err
			}
			parts[servers] = own
		}
		entry.Word = record.Word
		all = append(all, loaded{l.hash.sum(entry.name), entry, own})
	}
	last, now := from.Last(), policy.Instant(time.Since(header.Epoch))
	// A wall clock that went back drains nothing.
	now = max(now, last)
	same := header.Limit == l.whole.Load().Policy.String()
	begin := l.base
	l.begun = time.Now()
	if same && now < begin+policy.Instant(lasting) {
		l.base = max(now, begin)
	} else {
		all = l.begin(all, same, now, last)
	}
	for _, loaded := range all {
		shard := &l.shards[l.index(loaded.hash)]
		shard.loaded = append(shard.loaded, loaded)
	}
	for i := range l.shards {
		shard := &l.shards[i]
		shard.mu.Lock()
		if shard.part != nil {
			lapsed += shard.enter(l.now())
		}
		shard.mu.Unlock()
	}
	l.lapsed.Add(uint64(lapsed))
	l.noted.Store(true)
	return nil
}

// begin returns a file's entries without words, with the units that may still count at its instant
// now.
func (l *Local) begin(all []loaded, same bool, now, last policy.Instant) (kept []loaded) {
	if time.Duration(now-last) >= l.whole.Load().Memory {
		return nil
	}
	for _, loaded := range all {
		if same && loaded.from != nil {
			loaded.entry.Unpaid = loaded.from.Owed(loaded.entry.State, now)
		}
		if loaded.entry.Unpaid > 0 {
			loaded.from, loaded.entry.State = nil, part.State{Unpaid: loaded.entry.Unpaid}
			kept = append(kept, loaded)
		}
	}
	return kept
}

// enter moves a file's entries into the locked shard's table. It returns the units without room.
func (s *shard) enter(now policy.Instant) (lapsed int64) {
	for _, loaded := range s.loaded {
		entry := loaded.entry
		if loaded.from == nil || loaded.from.Servers != s.part.Servers {
			entry.State = s.part.Carry(loaded.from, entry.State, now)
		}
		if len(s.entries) >= s.maxEntries {
			lapsed += entry.Unpaid
			continue
		}
		s.entries[loaded.hash] = entry
	}
	s.loaded = nil
	return lapsed
}
