package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/ral-limiter/ral/internal/core/keycodec"
	"github.com/ral-limiter/ral/internal/core/seam"
	"github.com/ral-limiter/ral/internal/core/statefile"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/supervisor"
)

// State keeps an engine's keys in a file, so that a restart forgives nothing. The zero State keeps
// none. docs/state.md has details. New loads the file, as Load does; without a file the engine
// begins with no keys. The engine saves to the file from time to time and at Close. The file is
// replaced, so it is always whole.
//
// Close ends admission before it saves, so every admitted call is in the file. Calls under way and
// later ones are refused, whatever Config.WhenUnavailable says. If the process ends without Close,
// each key is forgiven at most its use since the last save began.
//
// Two engines never have the same file, in one process or in several: New returns ErrLocked while
// the first lives, by a file with ".lock" behind its name. If Close gives up a save that hangs, the
// file stays locked until that save has ended.
type State struct {
	// Path is the file's name, in an existing directory. A Tiered adds ".2", ".3" and so on for the
	// limits after the first.
	Path string

	// Every is the pause between two saves. The default is 10 seconds, the least 1ns.
	Every time.Duration

	// Fresh makes New begin with no keys if the file is of another family of limit or another type
	// of keys. The file gets ".old" behind its name, or ".old.2" and so on. By default New fails,
	// and always for a damaged file.
	Fresh bool
}

var (
	// ErrState reports that a saved state cannot be loaded: the state is damaged, or of another
	// kind of limit or keys. The file stays as it is.
	ErrState = errors.New("ral: the saved state cannot be loaded")
	// ErrLocked reports that another engine, in any process, has the file of Config.State.
	ErrLocked = statefile.ErrLocked
	// ErrUnsaved is returned by Health if saves have failed for longer than three times
	// State.Every, with the last failure wrapped. Health also returns ErrUnsaved if a save takes as
	// long, and at least a minute.
	ErrUnsaved = errors.New("ral: the state has not been saved for more than three times State.Every")
)

const (
	defaultEvery = 10 * time.Second
	// unsavedPeriods is the number of periods without a save that Health reports.
	unsavedPeriods = 3
	// slowSave is the least time after which Health reports a save that hangs.
	slowSave = time.Minute
)

// KeyCodec sets how keys are written to a saved state. name is kept in the file: a file of another
// name is refused, so change it with the form. encode appends the key's bytes to dst; different
// keys must have different bytes. decode makes a key of such bytes, which it must not keep. encode
// runs on a goroutine of the engine and on the callers of Save and Close, decode on the callers of
// New and Load. A key for which encode returns an error or panics is not saved: see Stats.Unsaved. If
// decode refuses a key, the state cannot be loaded.
//
// The bytes may also tell decode about the key's state, if the program knows about it. A save writes
// a state that it read between two calls of encode with the same bytes. Close reads each key's last
// state before it calls encode.
//
// Without KeyCodec, keys may be strings, bools, integers, netip.Addr, AddrPort and Prefix, arrays
// and structs of these with exported fields. Other types need encoding.BinaryMarshaler and, by
// pointer, encoding.BinaryUnmarshaler.
func KeyCodec[K comparable](
	name string, encode func(dst []byte, key K) ([]byte, error), decode func(src []byte) (K, error),
) Option[K] {
	return func(options *options[K]) { options.codec = &codec[K]{name, encode, decode} }
}

type codec[K comparable] struct {
	name   string
	encode func(dst []byte, key K) ([]byte, error)
	decode func(src []byte) (K, error)
}

func (c *codec[K]) Name() string                             { return c.name }
func (c *codec[K]) Append(dst []byte, key K) ([]byte, error) { return c.encode(dst, key) }
func (c *codec[K]) Decode(src []byte) (K, error)             { return c.decode(src) }

func keyCodec[K comparable](own keycodec.Codec[K]) (keycodec.Codec[K], error) {
	if own != nil {
		return own, nil
	}
	codec, err := keycodec.For[K]()
	if err != nil {
		return nil, fmt.Errorf("ral: the keys cannot be saved, unless engine.KeyCodec says how: %w", err)
	}
	return codec, nil
}

type keeper struct {
	state  State
	unlock func() error

	// mu guards the following.
	mu    sync.Mutex
	stats saveStats
	// begun is zero if no save is under way.
	begun time.Time
	// ended is closed when that save has ended.
	ended chan struct{}
	// closed means that no save begins. A save under way unlocks the file.
	closed bool
}

type saveStats struct {
	// since is when the last successful save, or the engine, began.
	since time.Time
	// wall is the same by the wall clock, and zero before the first save.
	wall time.Time
	took time.Duration
	saved
	err error
}

// openState locks the file of Config.State and loads it; loaded is nil if there is no file.
func openState[K comparable](config Config, codec keycodec.Codec[K]) (_ *keeper, loaded *loaded[K], err error) {
	if _, err := keyCodec(codec); err != nil {
		return nil, nil, err
	}
	// Resolved once: where the path leads later, this engine has no lock.
	if config.State.Path, err = statefile.Resolve(config.State.Path); err != nil {
		return nil, nil, err
	}
	k := &keeper{state: config.State, stats: saveStats{since: time.Now()}}
	if k.unlock, err = statefile.Lock(k.state.Path); err != nil {
		return nil, nil, err
	}
	loaded, err = loadFile(config, codec)
	if errors.Is(err, errOther) && k.state.Fresh {
		loaded, err = nil, setAside(k.state.Path)
	}
	if err != nil {
		advice := "move the file away to begin with no keys"
		if errors.Is(err, errOther) {
			advice += ", or set State.Fresh"
		}
		return nil, nil, errors.Join(fmt.Errorf("%s: %w (%s)", k.state.Path, err, advice), k.unlock())
	}
	return k, loaded, nil
}

func loadFile[K comparable](config Config, codec keycodec.Codec[K]) (*loaded[K], error) {
	file, err := os.Open(config.State.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	loaded, err := readState(file, config, codec)
	return loaded, errors.Join(err, file.Close())
}

const maxSetAside = 1000

func setAside(path string) error {
	name := path + ".old"
	for i := 2; i < maxSetAside; i++ {
		if _, err := os.Lstat(name); errors.Is(err, fs.ErrNotExist) {
			return os.Rename(path, name)
		}
		name = fmt.Sprintf("%s.old.%d", path, i)
	}
	return fmt.Errorf("there are %d files that were set aside: %s is the last", maxSetAside, name)
}

type saver struct {
	keeper *keeper
	save   func(io.Writer) (saved, error)
	seam   seam.Seam
}

func (s *saver) run(ctx context.Context) error {
	for {
		if _, event := seam.Receive[struct{}](s.seam, "saver: pause", s.keeper.state.Every, nil, ctx, nil); event == seam.Ended {
			return nil
		}
		// Stats and Health tell, and the first of failures in a row is an event.
		if err := s.keeper.replace(s.save, false); !errors.Is(err, errSaving) && !errors.Is(err, ErrClosed) {
			supervisor.Report(ctx, err)
		}
	}
}

var (
	errSaving = errors.New("an earlier save is still under way, and the file stays locked until it has ended")
	errDied   = errors.New("the save panicked")
)

// replace replaces the file by the output of save, and unlocks the file after the last save. If
// another save is under way, replace returns errSaving. If this save was to be the last, the other
// save unlocks the file when it ends, and may replace it until then.
func (k *keeper) replace(save func(io.Writer) (saved, error), last bool) (err error) {
	begun := time.Now()
	if !k.begin(begun, last) {
		return errSaving
	}
	var n saved
	err = errDied
	defer func() { err = errors.Join(err, k.end(begun, n, err)) }()
	err = statefile.Replace(k.state.Path, func(w io.Writer) (err error) {
		n, err = save(w)
		return err
	})
	return err
}

func (k *keeper) begin(now time.Time, last bool) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.begun.IsZero() || k.closed {
		k.closed = k.closed || last
		return false
	}
	k.begun, k.ended, k.closed = now, make(chan struct{}), last
	return true
}

// end records the end of a save, and unlocks the file if no other save comes.
func (k *keeper) end(begun time.Time, saved saved, err error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.begun = time.Time{}
	close(k.ended)
	switch {
	case err == nil:
		k.stats = saveStats{begun, begun.Round(0), time.Since(begun), saved, nil}
	case !errors.Is(err, ErrClosed):
		k.stats.err = err
	}
	if k.closed {
		return k.unlock()
	}
	return nil
}

// sync saves the present state. A save under way may lack some of it, so sync waits for that save
// first.
func (k *keeper) sync(save func(io.Writer) (saved, error)) error {
	for {
		err := k.replace(save, false)
		if !errors.Is(err, errSaving) {
			return err
		}
		k.mu.Lock()
		ended, closed := k.ended, k.closed
		k.mu.Unlock()
		if closed {
			return ErrClosed
		}
		<-ended
	}
}

func (k *keeper) close(save func(io.Writer) (saved, error)) error {
	if err := k.replace(save, true); err != nil {
		return fmt.Errorf("ral: the last state was not saved to %s, which holds an earlier one: %w", k.state.Path, err)
	}
	return nil
}

func (k *keeper) abandon() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return nil
	}
	k.closed = true
	if !k.begun.IsZero() {
		// The save under way unlocks the file.
		return nil
	}
	return k.unlock()
}

func (k *keeper) health() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	long := unsavedPeriods * k.state.Every
	old := time.Since(k.stats.since)
	switch {
	case k.stats.err != nil && old > long:
		last := "the last save that succeeded began"
		if k.stats.wall.IsZero() {
			last = "none has succeeded since the engine began,"
		}
		return fmt.Errorf("%w: %s %v ago: %w", ErrUnsaved, last, old.Round(time.Millisecond), k.stats.err)
	case !k.begun.IsZero() && time.Since(k.begun) > max(long, slowSave):
		return fmt.Errorf("%w: a save has been under way for %v", ErrUnsaved, time.Since(k.begun).Round(time.Second))
	}
	return nil
}

func (k *keeper) read() saveStats {
	if k == nil {
		return saveStats{}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.stats
}

func (c Config) stateFault() error {
	bad := func(field string, value any, want string) error {
		return &policy.FieldError{Of: "engine.Config", Field: "State." + field, Value: value, Want: want}
	}
	switch state := c.State; {
	case state.Every < 0:
		return bad("Every", state.Every, "a positive duration, or 0 for 10s")
	case state.Path == "" && state != (State{}):
		return bad("Path", `""`, "the name of a file, or no State at all")
	}
	return nil
}

func (s State) withDefaults() State {
	if s.Path != "" {
		s.Every = cmp.Or(s.Every, defaultEvery)
	}
	return s
}
