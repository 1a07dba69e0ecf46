package limits

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ral-limiter/ral/policy"
)

// RecordConfig configures Record. Path is required, and each other field has a default.
type RecordConfig struct {
	// Path is the file to which lines are appended. The file gets mode 0600, also if it exists.
	Path string
	// MaxBytes bounds the size of a file. A full file is renamed: .1 is appended to its name, and the file .1
	// before it becomes .2. The default is 64 MiB, and the minimum is 64 KiB.
	MaxBytes int64
	// MaxFiles bounds the number of renamed files. The oldest is overwritten. The default is 4.
	MaxFiles int
	// ShowKeys reports whether keys are written as package fmt prints them, which allocates. A key of more than
	// 1 KiB is then left out. If ShowKeys is false, keys are hashed with a secret of this Recorder, and no file
	// has the secret.
	ShowKeys bool
}

// RecordStats tells how much of a record is missing.
type RecordStats struct {
	// Lost counts lines that were not written: the disk was slower than the calls, or failed. Once the file can be
	// written again, it gets a line with the number of lines lost.
	Lost uint64
	// Err is the last error of the disk, or nil.
	Err error
}

const (
	recordBuffers = 8
	// recordLines is the number of lines in a buffer.
	recordLines = 1 << 10
	// recordText is the number of bytes that are written at once. The last line may exceed it.
	recordText = 32 << 10
	// recordKey is the longest text of a key, in bytes. `ral replay` reads no longer keys.
	recordKey = 1 << 10
)

// limitArrow stands between the limits before and after a change.
const limitArrow = " -> "

// The statuses of lines are HTTP status codes, as in access logs.
const (
	statusAdmitted = 200
	statusRefused  = 429
)

// record is the file of a Recorder. Calls append lines to a buffer. A goroutine writes full buffers as text, and each
// second also the buffer in use. A recorded call takes some 90 ns more than the limiter's, a third of them for the
// clock. Each line takes the goroutine some 40 ns (BenchmarkRecord, on an EPYC).
type record struct {
	config RecordConfig
	// epoch is the instant from which the lines' times count.
	epoch time.Time
	// numbers is the number of grants so far.
	numbers atomic.Uint64
	lost    atomic.Uint64
	// full passes buffers to the goroutine, and has room for every buffer. free passes empty buffers back.
	full, free chan []recordLine
	done       chan struct{}

	mu struct {
		sync.Mutex
		lines  []recordLine
		closed bool
	}

	// The goroutine alone uses file, size, text, limit and lossNoted, until done is closed.
	file *os.File
	size int64
	text []byte
	// limit is the quoted text of the limit in force at the last line that was written. It is "start" if the
	// limiter has no limit that can be set.
	limit string
	// lossNoted is the part of lost of which the file has a line.
	lossNoted uint64
	err       atomic.Pointer[error]
}

// recordLine is a line of a record.
type recordLine struct {
	// since is the time since the record's epoch.
	since  time.Duration
	verb   string
	status int
	units  int64
	// number is the number of a grant, or 0.
	number uint64
	// key is the text of the key, if keys are shown, and otherwise "". hash is the hash of the key, if they are not.
	// A line with neither has no key.
	key  string
	hash uint64
}

func openRecord(config RecordConfig, epoch time.Time, limit string) (*record, error) {
	bad := func(field string, value any, want string) (*record, error) {
		return nil, &policy.FieldError{Of: "limits.RecordConfig", Field: field, Value: value, Want: want}
	}
	if config.MaxBytes == 0 {
		config.MaxBytes = 64 << 20
	}
	if config.MaxFiles == 0 {
		config.MaxFiles = 4
	}
	switch {
	case config.Path == "":
		return bad("Path", `""`, "the name of a file")
	case config.MaxBytes < 2*recordText:
		return bad("MaxBytes", config.MaxBytes, "65536 or more, or 0 for 64 MiB")
	case config.MaxFiles < 0:
		return bad("MaxFiles", config.MaxFiles, "1 or more, or 0 for 4")
	}
	r := &record{
		config: config, epoch: epoch, limit: limit, done: make(chan struct{}),
		full: make(chan []recordLine, recordBuffers+1), free: make(chan []recordLine, recordBuffers+1),
	}
	r.mu.lines = make([]recordLine, 0, recordLines)
	for range recordBuffers {
		r.free <- make([]recordLine, 0, recordLines)
	}
	if err := r.open(); err != nil {
		if r.file != nil {
			_ = r.file.Close()
		}
		return nil, err
	}
	go r.run()
	return r, nil
}

// now returns the time since the epoch by the monotonic clock.
func (r *record) now() time.Duration { return time.Since(r.epoch) }

// add appends a line. add never waits for the disk, and allocates nothing.
func (r *record) add(line recordLine) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.closed {
		r.lost.Add(1)
		return
	}
	if r.mu.lines = append(r.mu.lines, line); len(r.mu.lines) >= recordLines {
		r.hand()
	}
}

// appendTo appends the text of a line: the instant in Unix nanoseconds, the verb, the status, the units, the grant's
// number, and the key.
func (l *recordLine) appendTo(buffer []byte, epoch time.Time) []byte {
	buffer = append(buffer, "ral "...)
	buffer = strconv.AppendInt(buffer, epoch.UnixNano()+int64(l.since), 10)
	buffer = append(append(append(buffer, ' '), l.verb...), ' ')
	buffer = append(strconv.AppendInt(buffer, int64(l.status), 10), ' ')
	buffer = append(strconv.AppendInt(buffer, l.units, 10), ' ')
	buffer = append(strconv.AppendUint(buffer, l.number, 10), ' ')
	buffer = append(buffer, l.key...)
	if l.hash != 0 {
		buffer = strconv.AppendUint(buffer, l.hash, 36)
	}
	return append(buffer, '\n')
}

// ended writes the line of the end of a grant. used is the number of units used, or AllUsed, of which the line says
// no number.
func (r *record) ended(number uint64, used int64) {
	verb := "end"
	if used < 0 {
		verb, used = "release", 0
	}
	r.add(recordLine{since: r.now(), verb: verb, status: statusAdmitted, units: used, number: number, key: "0"})
}

// hand passes the buffer in use to the goroutine. If every other buffer is full, the lines are lost. It needs mu
// locked.
func (r *record) hand() {
	select {
	case next := <-r.free:
		r.full <- r.mu.lines
		r.mu.lines = next
	default:
		r.lost.Add(uint64(len(r.mu.lines)))
		r.mu.lines = r.mu.lines[:0]
	}
}

// run is the goroutine that writes full buffers, until full is closed.
func (r *record) run() {
	defer close(r.done)
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for {
		select {
		case lines, ok := <-r.full:
			if !ok {
				r.noteLoss()
				r.note(r.file.Close())
				return
			}
			for i := range lines {
				r.text = lines[i].appendTo(r.text, r.epoch)
				if lines[i].verb == "limit" {
					_, after, _ := strings.Cut(lines[i].key, limitArrow)
					r.limit = `"` + after
				}
				if len(r.text) >= recordText || i == len(lines)-1 {
					r.lost.Add(r.write(r.text))
					r.text = r.text[:0]
				}
			}
			r.noteLoss()
			clear(lines) // so that the keys can be collected
			r.free <- lines[:0]
		case <-second.C:
			r.mu.Lock()
			if len(r.mu.lines) > 0 && !r.mu.closed {
				r.hand()
			}
			r.mu.Unlock()
		}
	}
}

// note keeps an error of the disk for stats.
func (r *record) note(err error) {
	if err != nil {
		r.err.Store(&err)
	}
}

// noteLoss writes how many lines were lost since the last note.
func (r *record) noteLoss() {
	lost := r.lost.Load()
	line := recordLine{since: r.now(), verb: "lost", units: int64(lost - r.lossNoted), key: "0"}
	if line.units > 0 && r.write(line.appendTo(nil, r.epoch)) == 0 {
		r.lossNoted = lost
	}
}

// write writes lines, and returns how many could not be written.
func (r *record) write(lines []byte) (lost uint64) {
	// The file is nil if it could not be opened before.
	if r.file == nil {
		r.note(r.open())
	}
	if r.file != nil && r.size > 0 && r.size+int64(len(lines)) > r.config.MaxBytes {
		r.rotate()
	}
	n, err := r.file.Write(lines)
	r.size += int64(n)
	r.note(err)
	return uint64(bytes.Count(lines[n:], []byte{'\n'}))
}

func (r *record) rotate() {
	r.note(r.file.Close())
	name := func(i int) string { return r.config.Path + "." + strconv.Itoa(i) }
	for i := r.config.MaxFiles; i > 1; i-- {
		if err := os.Rename(name(i-1), name(i)); !errors.Is(err, os.ErrNotExist) {
			r.note(err)
		}
	}
	r.note(os.Rename(r.config.Path, name(1)))
	r.note(r.open())
}

// open opens the file, and writes the first line, which has the epoch and the limit. A replay counts instants from the
// epoch.
func (r *record) open() (err error) {
	if r.file, err = os.OpenFile(r.config.Path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
		return err
	}
	info, err := r.file.Stat()
	if err != nil {
		return err
	}
	start := recordLine{verb: "start", key: r.limit}
	n, err := r.file.Write(start.appendTo(nil, r.epoch))
	r.size = info.Size() + int64(n)
	return errors.Join(err, r.file.Chmod(0o600))
}

func (r *record) close() error {
	r.mu.Lock()
	if !r.mu.closed {
		r.mu.closed = true
		r.full <- r.mu.lines
		close(r.full)
	}
	r.mu.Unlock()
	<-r.done
	return r.stats().Err
}

func (r *record) stats() (stats RecordStats) {
	stats.Lost = r.lost.Load()
	if err := r.err.Load(); err != nil {
		stats.Err = fmt.Errorf("ral: record: %w", *err)
	}
	return stats
}
