package engine

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/ral-limiter/ral/internal/core/decide"
	"github.com/ral-limiter/ral/internal/core/keycodec"
	"github.com/ral-limiter/ral/internal/core/penalty"
	"github.com/ral-limiter/ral/internal/core/statefile"
	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/table"
)

// Load is New with the state that Save wrote to r, read to the end. Decisions are as if the saved
// engine had gone on: the time since then, by the wall clock, has passed. If the wall clock went
// back, no time has passed, which grants nothing. On an error there is no engine. The error wraps
// ErrState, or it is from r or New.
//
// Units in use, those of a policy.InFlight, are left out as by Save.
//
// Config.Policy may be another of the saved engine's family. That policy takes over as by
// SetPolicy; with PolicyFor, as if it came with the calls: see TakeWith. If there are more keys
// than Config.MaxKeys, those that owe most are kept, and the others are counted in Stats.Forgiven.
// The type of the keys and the codec must be the same; see KeyCodec. Config.State cannot be set as
// well: write r to its file instead, and call New.
func Load[K comparable](r io.Reader, config Config, more ...Option[K]) (*Engine[K], error) {
	config = config.withDefaults()
	options, err := prepare(config, more)
	if err != nil {
		return nil, err
	}
	if config.State != (State{}) {
		return nil, &policy.FieldError{Of: "engine.Load", Field: "Config.State", Value: fmt.Sprintf("%+v", config.State), Want: "none, as the state comes from r"}
	}
	config.chosen = options.policyForSet
	loaded, err := readState(r, config, options.codec)
	if err != nil {
		return nil, namedBy(config.Name, err)
	}
	return start(config, options, loaded, nil)
}

// loaded is a table with the keys of a file, and its engine's beginning.
type loaded[K comparable] struct {
	table *table.Table[K]
	keys  *table.Loader[K]
	// first is the instant at which the engine begins, at or after last. last is the latest instant in
	// the file: the saving engine's, or the one at which idle keys were left out.
	first, last policy.Instant
	// zero is the time of instant 0. zero is the zero time if first is not of that clock.
	zero time.Time

	// blocks has its table and keys alone. blocks is nil if no key is blocked.
	blocks *loaded[K]
}

// addBlock adds a key that is blocked, or has refusals that count under the configuration's
// Penalty. Without a Penalty, only a block that has not ended counts.
func (l *loaded[K]) addBlock(config Config, codec keycodec.Codec[K], record statefile.Record, now policy.Instant) error {
	config = config.forBlocks()
	if config.Policy.FreshAt(record.Word) <= now {
		return nil
	}
	if l.blocks == nil {
		config.seed = l.table.View().Seed()
		t := newTable[K](config)
		l.blocks = &loaded[K]{table: t, keys: t.Loader(), first: 1, last: 1}
	}
	key, err := decode(codec, record.Key)
	if err != nil {
		return fmt.Errorf("%w: blocked key %.40q: %w", ErrState, record.Key, err)
	}
	l.blocks.keys.Add(key, record.Word, false)
	return nil
}

const (
	// longLoaded is the instant at which an engine without keys begins anew with instant 1. Time
	// stands still for some limits 9 years after instant 0.
	longLoaded = policy.Instant(366 * 24 * time.Hour)
	// lastLoaded is the latest instant at which an engine can begin: 146 years. It leaves as many.
	lastLoaded = policy.Instant(1 << 62)
)

// errOther causes an ErrState if the file is whole, but of another limit or other keys.
var errOther = errors.New("is not of this engine")

func readState[K comparable](reader io.Reader, config Config, own keycodec.Codec[K]) (*loaded[K], error) {
	codec, err := keyCodec(own)
	if err != nil {
		return nil, err
	}
	from, err := statefile.NewReader(reader)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrState, err)
	}
	header := from.Header()
	if header.Codec != codec.Name() {
		return nil, fmt.Errorf("%w: it %w: its keys are %s, the engine has %s", ErrState, errOther, header.Codec, codec.Name())
	}
	config.Policy = decide.Anchor(config.Policy, header.Epoch)
	limits := limitsOf{own: config.Policy, zero: header.Epoch, ownText: config.Policy.String(), chosen: config.chosen}
	if _, err := limits.find(header.Limit); err != nil {
		return nil, err
	}
	l := &loaded[K]{table: newTable[K](config), zero: header.Epoch}
	l.keys = l.table.Loader()
	// The engine begins at this instant or later.
	since := sinceBy(config.wall, header.Epoch)
	now := max(since(), 1)
	var carried []toCarry[K]
	for {
		record, err := from.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrState, err)
		}
		if record.Limit == penalty.Text {
			if err := l.addBlock(config, codec, record, now); err != nil {
				return nil, err
			}
			continue
		}
		carry, err := limits.find(record.Limit)
		if err != nil {
			return nil, err
		}
		limit := carry
		if limit == nil {
			limit = config.Policy
		}
		if _, occupies := limit.(policy.Occupier); occupies || record.Word == 0 || limit.FreshAt(record.Word) <= now {
			continue
		}
		read := toCarry[K]{word: record.Word, from: carry, foreign: record.Flags&statefile.ForeignTurn != 0}
		if read.key, err = decode(codec, record.Key); err != nil {
			return nil, fmt.Errorf("%w: key %.40q: %w", ErrState, record.Key, err)
		}
		if carry != nil {
			carried = append(carried, read)
			continue
		}
		l.keys.Add(read.key, read.word, read.foreign)
	}
	// The limit changes now, and not before the last instant: if the wall clock went back, use that
	// still counted then would count from an earlier instant, and less long.
	now = max(now, from.Last())
	for _, carry := range carried {
		state, _ := config.Policy.(policy.Relative).Carry(carry.from, carry.word, now)
		state = min(state, policy.MaxWord)
		if state != 0 && config.Policy.FreshAt(state) > now {
			l.keys.Add(carry.key, state, carry.foreign)
		}
	}
	// The wall clock may have gone back since. Keys left out as fresh must not be fresh too early.
	l.last = now
	l.first = max(since(), l.last)
	switch {
	case l.first > longLoaded && l.table.View().Len() == 0 && l.blocks == nil:
		l.first, l.last, l.zero = 1, 1, time.Time{}
	case l.first > lastLoaded:
		return nil, fmt.Errorf("%w: it began at %v, too long ago by this machine's clock", ErrState, header.Epoch)
	}
	return l, nil
}

type toCarry[K comparable] struct {
	key     K
	word    uint64
	from    policy.Policy
	foreign bool
}

// sinceBy returns the instant by the wall clock, with instant 0 at zero. A nil clock is wallTime.
func sinceBy(wall func() time.Time, zero time.Time) func() policy.Instant {
	if wall == nil {
		wall = wallTime
	}
	return func() policy.Instant { return policy.Instant(wall().Sub(zero)) }
}

// decode returns a key. A codec that panics has refused it.
func decode[K comparable](codec keycodec.Codec[K], src []byte) (key K, err error) {
	err = errPanicked
	defer func() {
		if err == errPanicked { //nolint:errorlint // it was set here
			_ = recover()
		}
	}()
	return codec.Decode(src)
}

type limitsOf struct {
	// own is the engine's policy.
	own policy.Policy
	// zero is the file's.
	zero    time.Time
	ownText string
	// chosen means that keys have their own limits: see find.
	chosen bool
	// text is the text of the limit that was found last.
	text string
	// last is that limit, or nil for the engine's.
	last policy.Policy
}

// find returns the policy of that text, to translate words from; nil for the engine's own.
func (l *limitsOf) find(text string) (policy.Policy, error) {
	switch text {
	case l.ownText:
		return nil, nil
	case l.text:
		return l.last, nil
	}
	other := func(why string) error {
		return fmt.Errorf("%w: it %w: its limit is %q, %s the engine's, %q", ErrState, errOther, text, why, l.ownText)
	}
	limit, err := policy.Parse(text)
	if err != nil {
		return nil, other("which cannot be read here and is not")
	}
	limit = decide.Anchor(limit, l.zero)
	relative, ok := decide.Related(limit, l.own)
	if !ok {
		return nil, other("of another family than")
	}
	if l.chosen && relative.Reads(limit) {
		// The word may be of an unchanged limit that PolicyFor chose. To carry it from the file's
		// limit would forgive or charge the key.
		limit = nil
	}
	l.text, l.last = text, limit
	return limit, nil
}
