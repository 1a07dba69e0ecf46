package limitfile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/core/filewatch"
	"github.com/ral-limiter/ral/policy"
)

// Options configures a File. The zero Options is ready to use.
type Options struct {
	// Every is the time between two looks at the file. The default is a second, and the minimum is 10 ms.
	Every time.Duration
	// OnReload receives each result of a later reading. The changes have taken force, or do at the next
	// start. err is nil, or has the reasons that the file was refused or that a limit could not change,
	// which is among the changes once it has. OnReload delays the next look. It must not panic, and must not call the
	// file's Reload or Close. nil writes the changes and faults to slog.Default.
	OnReload func(changes []Change, err error)
}

// File is a file of limits that is watched. Open makes a File; the zero File is not usable. Its methods are safe for
// concurrent use. A File must be closed.
//
// Engine, With and Shares make limiters that follow a limit of the file. Limits returns the limits in force, Health
// the reason that a file was refused, and Reload reads the file anew.
type File struct {
	path    string
	options Options
	watch   filewatch.Watch[[]Limit]
	// reloads passes the channel for the answer of a Reload to run.
	reloads chan chan error
	ctx     context.Context
	cancel  context.CancelFunc
	// done is closed when the watching has ended.
	done chan struct{}

	// changing is locked while limits change. It must be locked before closing.
	changing struct {
		sync.Mutex
		// limits has the limits of the last good file, and known has the same limits by name.
		limits []Limit
		known  map[string]*Limit
		// members has the limiters that follow the file, by the name of their limit.
		members map[string]member
	}
	// closing is a leaf: no lock is taken while it is locked. So Close can interrupt a change.
	closing struct {
		sync.Mutex
		closed bool
		// owned has the limiters that Close closes.
		owned map[io.Closer]bool
	}
	// health is a leaf, and guards the error that Health returns.
	health struct {
		sync.Mutex
		err error
	}
}

// member is a Limiter with the type of its keys hidden, since a File changes limiters with keys of different
// types together.
type member interface {
	prepare(next *Limit) (update, error)
}

// update is a change of a member that has been checked. Exactly one of its functions must be called, once.
type update struct {
	commit  func(context.Context) (atLimit map[string]int, err error)
	discard func() error
}

const (
	defaultEvery = time.Second
	minEvery     = 10 * time.Millisecond
)

// Open reads a file of limits, and watches it until [File.Close]. The first reading takes the file
// as it is. Later a changed file is read once it was the same at two looks. So a file that a program
// is still writing does not come into force, unless the program pauses for longer than Options.Every.
// Only a file that is written under another name and then renamed is certain to be read whole.
//
// The error is from [Read], or a *policy.FieldError.
func Open(path string, options Options) (*File, error) {
	options.Every = cmp.Or(options.Every, defaultEvery)
	if options.Every < minEvery {
		return nil, &policy.FieldError{Of: "limitfile.Options", Field: "Every", Value: options.Every, Want: "10ms or more, or 0 for 1s"}
	}
	file := &File{path: path, options: options, reloads: make(chan chan error), done: make(chan struct{})}
	file.watch = filewatch.Watch[[]Limit]{
		Stamp: func() string { return filewatch.Stamp(path) },
		Read:  func() ([]Limit, error) { return Read(path) },
		Put:   file.put,
	}
	file.watch.Known = file.watch.Stamp()
	file.watch.Last = file.watch.Known
	limits, err := Read(path)
	if err != nil {
		return nil, err
	}
	file.ctx, file.cancel = context.WithCancel(context.Background())
	file.changing.limits, file.changing.known, file.changing.members = limits, byName(limits), map[string]member{}
	file.closing.owned = map[io.Closer]bool{}
	go file.run()
	return file, nil
}

// Limits returns the limits of the last good file. The caller must not change them.
func (f *File) Limits() []Limit {
	f.changing.Lock()
	defer f.changing.Unlock()
	return f.changing.limits
}

// Health returns nil if the file was good when it was last read, and all its limits are in force.
// Otherwise the error has the reasons. If a reason names a limit that could not change, the other
// limits of the file are in force. If not, the file was refused, and the limits of the last good file
// are in force.
func (f *File) Health() error {
	f.health.Lock()
	defer f.health.Unlock()
	return f.health.err
}

// Reload reads the file at one of the next looks, even if the file has not changed, and returns Health
// afterwards. Like any reading, it waits until the file was the same at two looks. The error may also be
// the context's, or engine.ErrClosed.
func (f *File) Reload(ctx context.Context) error {
	answer := make(chan error, 1)
	select {
	case f.reloads <- answer:
	case <-ctx.Done():
		return ctx.Err()
	case <-f.done:
		return engine.ErrClosed
	}
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-f.done:
		return engine.ErrClosed
	}
}

// Close stops watching, and closes the limiters of the file. It interrupts a change that is under way. A
// second Close does nothing. The error is from the limiters.
func (f *File) Close() error {
	f.cancel()
	f.closing.Lock()
	f.closing.closed = true
	owned := f.closing.owned
	f.closing.owned = nil
	f.closing.Unlock()
	var err error
	for limiter := range owned {
		err = errors.Join(err, limiter.Close())
	}
	<-f.done
	return err
}

// own records a limiter that Close is to close. After Close, own closes the limiter and returns engine.ErrClosed.
func (f *File) own(limiter io.Closer) error {
	f.closing.Lock()
	defer f.closing.Unlock()
	if f.closing.closed {
		return errors.Join(engine.ErrClosed, limiter.Close())
	}
	f.closing.owned[limiter] = true
	return nil
}

// release closes a limiter that own has recorded, unless Close has taken it over.
func (f *File) release(limiter io.Closer) error {
	f.closing.Lock()
	owned := f.closing.owned[limiter]
	delete(f.closing.owned, limiter)
	f.closing.Unlock()
	if !owned {
		return nil
	}
	return limiter.Close()
}

// run watches the file until Close.
func (f *File) run() {
	defer close(f.done)
	ticks := time.NewTicker(f.options.Every)
	defer ticks.Stop()
	var waiting []chan error
	for {
		select {
		case <-f.ctx.Done():
			return
		case answer := <-f.reloads:
			waiting = append(waiting, answer)
			f.watch.Force()
		case <-ticks.C:
			if !f.watch.Look() {
				continue
			}
			err := f.Health()
			for _, answer := range waiting {
				answer <- err
			}
			waiting = nil
		}
	}
}

// put puts the limits of a file in force, or keeps the last limits if the file has faults.
func (f *File) put(limits []Limit, err error) {
	var changes []Change
	if err == nil {
		changes, err = f.change(limits)
	}
	if f.ctx.Err() != nil {
		return
	}
	f.health.Lock()
	before := f.health.err
	f.health.err = err
	f.health.Unlock()
	isSame := err == nil && before == nil || err != nil && before != nil && err.Error() == before.Error()
	switch {
	case isSame && len(changes) == 0:
	case f.options.OnReload != nil:
		f.options.OnReload(changes, err)
	default:
		f.log(changes, err)
	}
}

func (f *File) log(changes []Change, err error) {
	for _, change := range changes {
		slog.Info("ral: a limit has changed", "file", f.path, "change", change.String())
	}
	if err != nil {
		slog.Error("ral: a file of limits is not in force, or not all of it", "file", f.path, "error", err)
	} else {
		slog.Info("ral: a file of limits is in force", "file", f.path)
	}
}

// change checks all limits, and then changes the members, one after the other. It returns the changes of the
// file. If a member fails to change, the next look tries again.
func (f *File) change(limits []Limit) ([]Change, error) {
	f.changing.Lock()
	defer f.changing.Unlock()
	if n := len(f.changing.limits); len(limits) == 0 && n > 0 {
		return nil, &Fault{File: f.path, Err: fmt.Errorf("it has no limits, and the file before had %d", n)}
	}
	before, known := f.changing.limits, byName(limits)
	_, err := Compare(before, limits)
	for _, name := range slices.Sorted(maps.Keys(f.changing.members)) {
		if known[name] == nil {
			err = errors.Join(err, &Fault{File: f.path, Key: name, Err: errors.New("a limiter of this name is in use: its limit is required")})
		}
	}
	if err != nil {
		return nil, err
	}
	updates := map[string]update{}
	for i := range limits {
		if limiter := f.changing.members[limits[i].Name]; limiter != nil {
			made, faults := limiter.prepare(&limits[i])
			updates[limits[i].Name], err = made, errors.Join(err, faults)
		}
	}
	if err != nil {
		for _, made := range updates {
			err = errors.Join(err, made.discard())
		}
		return nil, err
	}
	f.changing.limits, f.changing.known = limits, known
	atLimit := map[string]map[string]int{}
	for _, limit := range limits {
		if made, ok := updates[limit.Name]; ok && f.ctx.Err() == nil {
			counts, failed := made.commit(f.ctx)
			atLimit[limit.Name], err = counts, errors.Join(err, failed)
		}
	}
	if err != nil {
		f.watch.Force()
	}
	// The limits of both files now know what their limiters hold.
	changes, _ := Compare(before, limits)
	for i, change := range changes {
		changes[i].needsRoom = false
		if n, ok := atLimit[change.Name][change.Setting]; ok {
			changes[i].KeysAtLimit = n
		}
	}
	return changes, err
}

// add makes a limiter follow the limit of that name, and puts the limit in force.
func (f *File) add(name string, limiter member) error {
	f.changing.Lock()
	defer f.changing.Unlock()
	limit := f.changing.known[name]
	if limit == nil {
		return fmt.Errorf("ral: %s has no limit %.80q", f.path, name)
	}
	if f.changing.members[name] != nil {
		return fmt.Errorf("ral: %s: the limit %q has a limiter already", f.path, name)
	}
	made, err := limiter.prepare(limit)
	if err == nil {
		_, err = made.commit(f.ctx)
	}
	if err != nil {
		return errors.Join(err, made.discard())
	}
	f.changing.members[name] = limiter
	return nil
}
