package engine

import (
	"bytes"
	"errors"
	"io"
	"time"

	"github.com/ral-limiter/ral/internal/core/keycodec"
	"github.com/ral-limiter/ral/internal/core/statefile"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/table"
)

// keysPerTurn is the number of keys, some 50 µs, after which Save lets other goroutines run.
// Otherwise a call might wait for the end of a time slice, 10 ms.
const keysPerTurn = 256

// Save writes the state of all keys to w, for Load. Save blocks no call, and is safe for concurrent
// use. Config.State does this by itself. Each key's state is from a moment during the call. So the
// state has all units that were taken before Save began, and perhaps later ones. Keys as good as new
// are left out, and so are units in use, those of a policy.InFlight: the calls that would release
// them are gone. Other units of waiting calls and of reservations count as taken: nothing gives them
// back in an engine that is loaded.
//
// The error is ErrClosed if the engine was closed before or during the call, from w, or says why
// keys cannot be written; see KeyCodec. Load then refuses the output. A key that its codec refuses,
// or longer than a mebibyte, is left out without an error: see Stats.Unsaved.
func (e *Engine[K]) Save(w io.Writer) error {
	_, err := e.save(w)
	return e.named(err)
}

// Sync saves the state to the file of Config.State now: when it returns nil, all that was taken
// before the call is in the file. Without a file Sync does nothing. Sync is safe for concurrent
// use. The error is ErrClosed if the engine was closed before or during the call. On another error
// the file stays as it was, and the next save tries again.
func (e *Engine[K]) Sync() error {
	if e.keeper == nil {
		return nil
	}
	return e.named(e.keeper.sync(e.save))
}

type saved struct {
	keys int
	// unsaved counts the keys that could not be written.
	unsaved uint64
}

func (e *Engine[K]) save(w io.Writer) (saved saved, err error) {
	if e.closed.Load() {
		return saved, ErrClosed
	}
	saving, err := e.newSaving(w)
	if err != nil {
		return saved, err
	}
	e.saveKeys(saving)
	if engine := e.blocks.Load(); engine != nil {
		saving.begin(engine.table.View().Terms())
		engine.saveKeys(saving)
	}
	// Close ends the keys after it has set closed. While closed is not set, none was missed.
	if e.closed.Load() {
		return saved, ErrClosed
	}
	return saving.end(e.control.Now())
}

func (e *Engine[K]) saveKeys(saving *saving[K]) {
	seen := 0
	goOn := func() bool {
		if seen++; seen%keysPerTurn == 0 {
			e.seam.Yield("save: others", nil)
		}
		return saving.err == nil && !e.closed.Load()
	}
	view := e.table.View()
	for entry, reading := range view.All() {
		if saving.add(entry.Key(), reading, func() (table.Reading, bool) { return view.State(entry) }); !goOn() {
			break
		}
	}
}

func (e *Engine[K]) saveLast(w io.Writer) (saved, error) {
	saving, err := e.newSaving(w)
	if err != nil {
		return saved{}, err
	}
	add := func(entry *table.Entry[K], reading table.Reading) { saving.add(entry.Key(), reading, nil) }
	e.table.Drain(add)
	if blocksEngine := e.blocks.Load(); blocksEngine != nil {
		// Until here calls took from keys, and asked for the blocks.
		e.endBlocks()
		saving.begin(blocksEngine.table.View().Terms())
		blocksEngine.table.Drain(add)
	}
	return saving.end(e.control.Now())
}

type saving[K comparable] struct {
	to    *statefile.Writer
	codec keycodec.Codec[K]
	// now is the instant at which the save began.
	now policy.Instant
	// epoch is the epoch of the policy in the file.
	epoch uint64
	// own reports whether the program has set the codec.
	own bool
	// key has the bytes of the present key, and before those of the codec's previous call.
	key, before []byte
	saved
	err error
}

func (e *Engine[K]) newSaving(w io.Writer) (*saving[K], error) {
	codec, err := keyCodec(e.codec)
	if err != nil {
		return nil, err
	}
	before := wallTime()
	s := &saving[K]{codec: codec, own: e.codec != nil, now: e.control.Now()}
	// The wall clock comes second. If this goroutine is held up in between, the loaded engine
	// begins earlier. The other way round it would find time that has not passed.
	zero := wallTime().Add(-time.Duration(s.now))
	terms := e.table.View().Terms()
	if _, ok := terms.Policy.(policy.Anchored); ok {
		// Wall clock windows must not move ahead, or a window would come too early; nor back with
		// the wall clock, or it would come again.
		zero = before.Add(-time.Duration(s.now))
		if e.time.zero.After(zero) {
			zero = e.time.zero
		}
	}
	s.epoch = terms.Epoch
	header := statefile.Header{Epoch: zero, Limit: terms.Policy.String(), Codec: codec.Name()}
	s.to, err = statefile.NewWriter(w, header)
	return s, err
}

// owes reports whether a key has a state to keep: it is not as good as new, and no units in use.
func (s *saving[K]) owes(reading table.Reading) bool {
	return reading.State != 0 && reading.Terms.Occupier == nil && reading.Terms.Policy.FreshAt(reading.State) > s.now
}

// add writes a key that owes. A key that cannot be written is counted. read reads the state again; it
// is nil for a last state.
func (s *saving[K]) add(key K, reading table.Reading, read func() (table.Reading, bool)) {
	if s.err != nil || !s.owes(reading) {
		return
	}
	agreed := s.encode(key)
	if s.own && read != nil {
		if reading, agreed = s.pair(key, read); !s.owes(reading) {
			return
		}
	}
	if !agreed {
		s.unsaved++
		return
	}
	if reading.Terms.Epoch != s.epoch {
		if s.begin(reading.Terms); s.err != nil {
			return
		}
	}
	var flags uint8
	if reading.Foreign {
		flags = statefile.ForeignTurn
	}
	switch err := s.to.Add(s.key, reading.State, flags); {
	case err == nil:
		s.keys++
	case errors.Is(err, statefile.ErrUnfit):
		s.unsaved++
	default:
		s.err = err
	}
}

// maxReadings bounds the readings of a key whose codec never returns the same bytes twice.
const maxReadings = 16

// pair reads a state between two calls of the codec with the same bytes: see KeyCodec. The zero
// Reading is a dead key's.
func (s *saving[K]) pair(key K, read func() (table.Reading, bool)) (reading table.Reading, agreed bool) {
	for range maxReadings {
		s.before = append(s.before[:0], s.key...)
		if reading, _ = read(); !s.encode(key) {
			break
		}
		if bytes.Equal(s.before, s.key) {
			return reading, true
		}
	}
	return reading, false
}

func (s *saving[K]) encode(key K) bool {
	var err error
	s.key, err = encode(s.codec, s.key[:0], key)
	return err == nil
}

func (s *saving[K]) begin(terms *table.Terms) {
	s.epoch = terms.Epoch
	if s.err == nil {
		s.err = s.to.SetLimit(terms.Policy.String())
	}
}

var errPanicked = errors.New("ral: the key's codec panicked")

// encode appends the key's bytes to dst. A key that panics the codec must not stop the save.
func encode[K comparable](codec keycodec.Codec[K], dst []byte, key K) (bytes []byte, err error) {
	err = errPanicked
	defer func() {
		if err == errPanicked { //nolint:errorlint // it was set here
			_ = recover()
		}
	}()
	return codec.Append(dst, key)
}

// end writes the end of the file. now is read after the last word, so no take in the file is later.
// If the clock went back, the file still ends at s.now, as keys fresh by then were left out.
func (s *saving[K]) end(now policy.Instant) (saved, error) {
	if s.err == nil {
		s.err = s.to.Close(max(now, s.now))
	}
	return s.saved, s.err
}

func wallTime() time.Time { return time.Now().Round(0) }
