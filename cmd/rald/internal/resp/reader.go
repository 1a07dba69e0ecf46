package resp

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Limits bound what a client may send. Each field must be above 0.
type Limits struct {
	// Arguments is the most arguments of a command, its name included.
	Arguments int
	// Argument is the most bytes of an argument.
	Argument int
	// Command is the most bytes of a whole command, and so of the reader's buffer.
	Command int
}

// ErrIncomplete reports that the buffer ends within a command, or has none.
var ErrIncomplete = errors.New("resp: the command is not complete")

// ProtocolError reports a command that cannot be read. What follows it in the stream has no
// known beginning, so the connection ends.
type ProtocolError struct{ Text string }

func (e *ProtocolError) Error() string { return "Protocol error: " + e.Text }

func fault(format string, args ...any) error {
	return &ProtocolError{Text: fmt.Sprintf(format, args...)}
}

// smallBuffer is the size of the buffer of a connection that is idle or sends small commands.
const smallBuffer = 4 << 10

// longestHeader is the most bytes of a line that announces a number, without its end.
const longestHeader = 32

// Reader finds the commands in a stream. It is for one goroutine.
type Reader struct {
	from   io.Reader
	limits Limits

	buffer     []byte
	start, end int // the bytes of the buffer that are not read yet

	// The command that begins at start, as far as it has come. at is the number of its bytes
	// that were looked at, so that a command that comes in many pieces is looked at once.
	args    [][]byte
	spans   []span
	at      int
	missing int // arguments of an array that are still to come
	array   bool
	length  int // of the argument that begins at at, or -1 if its header is still to come
}

// span is an argument as offsets from the beginning of its command.
type span struct{ from, to int }

// NewReader returns a reader of the commands that come from r.
func NewReader(r io.Reader, limits Limits) *Reader {
	return &Reader{from: r, limits: limits, length: -1}
}

// SetLimits replaces the limits, from the next command on.
func (r *Reader) SetLimits(limits Limits) { r.limits = limits }

// Fill reads once from the stream. It returns the error of that read if no byte came.
func (r *Reader) Fill() error {
	r.makeRoom()
	n, err := r.from.Read(r.buffer[r.end:])
	r.end += n
	switch {
	case n > 0:
		return nil
	case err == nil:
		return io.ErrNoProgress
	}
	return err
}

// makeRoom leaves room in the buffer for at least one byte. A command that Next has called
// incomplete is shorter than the limit, so the buffer never exceeds it by more than a read.
func (r *Reader) makeRoom() {
	held := r.end - r.start
	switch {
	case held == 0 && len(r.buffer) != smallBuffer:
		r.buffer, r.start, r.end = make([]byte, smallBuffer), 0, 0
	case held == 0:
		r.start, r.end = 0, 0
	case r.end == len(r.buffer):
		into := r.buffer
		if held > len(r.buffer)/2 {
			into = make([]byte, 2*len(r.buffer))
		}
		r.end = copy(into, r.buffer[r.start:r.end])
		r.start, r.buffer = 0, into
	}
}

// Partial reports whether the buffer holds the beginning of a command.
func (r *Reader) Partial() bool { return r.end > r.start }

// HasRoom reports whether the buffer holds less than a command may have.
func (r *Reader) HasRoom() bool { return r.end-r.start < r.limits.Command }

// Next returns the arguments of the next command in the buffer, at least one. They are valid
// until Fill. The error is ErrIncomplete, or a *ProtocolError: the reader is of no use after
// that.
func (r *Reader) Next() (args [][]byte, err error) {
	for {
		done, err := r.command()
		if err != nil {
			return nil, err
		}
		if !done {
			if r.end-r.start > r.limits.Command {
				return nil, r.tooLong()
			}
			return nil, ErrIncomplete
		}
		if r.at > r.limits.Command {
			return nil, r.tooLong()
		}
		r.args = r.args[:0]
		for _, s := range r.spans {
			r.args = append(r.args, r.buffer[r.start+s.from:r.start+s.to:r.start+s.to])
		}
		r.start += r.at
		r.at, r.missing, r.array, r.length, r.spans = 0, 0, false, -1, r.spans[:0]
		if len(r.args) > 0 {
			return r.args, nil
		}
		// An empty line or an empty array asks for nothing.
	}
}

func (r *Reader) tooLong() error {
	return fault("the command is too long: at most %d bytes are accepted", r.limits.Command)
}

// command looks at the bytes that have come, and reports whether the command is complete.
func (r *Reader) command() (done bool, err error) {
	if !r.array {
		if r.start == r.end {
			return false, nil
		}
		if r.buffer[r.start] != '*' {
			return r.inline()
		}
		n, ok, err := r.header("invalid multibulk length", "too big mbulk count string")
		if !ok {
			return false, err
		}
		if n > int64(r.limits.Arguments) {
			return false, fault("invalid multibulk length: at most %d arguments are accepted", r.limits.Arguments)
		}
		r.array, r.missing = true, int(max(n, 0))
	}
	for ; r.missing > 0; r.missing-- {
		if done, err := r.argument(); !done {
			return false, err
		}
	}
	return true, nil
}

// argument reads one argument of an array.
func (r *Reader) argument() (done bool, err error) {
	rest := r.buffer[r.start+r.at : r.end]
	if r.length < 0 {
		if len(rest) == 0 {
			return false, nil
		}
		if rest[0] != '$' {
			return false, fault("expected '$', got %q", rest[0])
		}
		n, ok, err := r.header("invalid bulk length", "too big bulk count string")
		if !ok {
			return false, err
		}
		if n < 0 {
			return false, fault("invalid bulk length")
		}
		if n > int64(r.limits.Argument) {
			return false, fault("invalid bulk length: at most %d bytes are accepted", r.limits.Argument)
		}
		r.length = int(n)
		rest = r.buffer[r.start+r.at : r.end]
	}
	if len(rest) < r.length+2 {
		return false, nil
	}
	if rest[r.length] != '\r' || rest[r.length+1] != '\n' {
		return false, fault("an argument of %d bytes does not end there", r.length)
	}
	r.spans = append(r.spans, span{r.at, r.at + r.length})
	r.at += r.length + 2
	r.length = -1
	return true, nil
}

// header reads the number of a line such as "*3". ok is false if the line is not complete or
// err is set.
func (r *Reader) header(invalid, tooLong string) (n int64, ok bool, err error) {
	line := r.buffer[r.start+r.at : r.end]
	end := bytes.IndexByte(line[:min(len(line), longestHeader+2)], '\n')
	if end < 0 {
		if len(line) > longestHeader+1 {
			return 0, false, fault("%s", tooLong)
		}
		return 0, false, nil
	}
	if end < 2 || line[end-1] != '\r' {
		return 0, false, fault("%s", invalid)
	}
	n, ok = Int(line[1 : end-1])
	if !ok {
		return 0, false, fault("%s", invalid)
	}
	r.at += end + 1
	return n, true, nil
}

// inline reads a command that is a line of words, as people type it.
func (r *Reader) inline() (done bool, err error) {
	line := r.buffer[r.start:r.end]
	end := bytes.IndexByte(line[r.at:], '\n')
	if end < 0 {
		r.at = len(line)
		if r.at > r.limits.Argument {
			return false, fault("too big inline request")
		}
		return false, nil
	}
	end += r.at
	r.at = end + 1
	if end > r.limits.Argument {
		return false, fault("too big inline request")
	}
	return true, r.words(bytes.TrimSuffix(line[:end], []byte{'\r'}))
}

// words finds the words of a line. Quotes may begin anywhere in a word and have spaces in them;
// the end of quotes is that of the word. A word without its quotes and escapes is no longer than
// with them, and is written in its place.
func (r *Reader) words(line []byte) error {
	for at := 0; ; {
		for at < len(line) && isSpace(line[at]) {
			at++
		}
		if at == len(line) {
			return nil
		}
		if len(r.spans) == r.limits.Arguments {
			return fault("at most %d arguments are accepted", r.limits.Arguments)
		}
		from, to := at, at
		for at < len(line) && !isSpace(line[at]) {
			q := line[at]
			at++
			if q != '"' && q != '\'' {
				line[to] = q
				to++
				continue
			}
			for at < len(line) && line[at] != q {
				var n int
				line[to], n = unescaped(line[at:], q)
				at += n
				to++
			}
			if at++; at > len(line) || at < len(line) && !isSpace(line[at]) {
				return fault("unbalanced quotes in request")
			}
		}
		r.spans = append(r.spans, span{from, to})
	}
}

func isSpace(b byte) bool { return b == ' ' || '\t' <= b && b <= '\r' }

// unescaped returns the first byte of a text in quotes of the kind q, and how many bytes stand
// for it. In single quotes only \' is an escape. In double quotes \n, \r, \t, \b, \a and \xHH are,
// and \ before any other byte stands for that byte.
func unescaped(text []byte, q byte) (b byte, n int) {
	switch {
	case text[0] != '\\' || len(text) == 1 || q == '\'' && text[1] != q:
		return text[0], 1
	case text[1] == 'x' && len(text) >= 4:
		if _, err := hex.Decode(text[2:3:3], text[2:4]); err == nil {
			return text[2], 4
		}
	}
	if i := strings.IndexByte("nrtba", text[1]); i >= 0 {
		return "\n\r\t\b\a"[i], 2
	}
	return text[1], 2
}

// Int reads a decimal number as Redis does: without a plus sign, spaces or leading zeros. It
// reports whether that is one that an int64 holds.
func Int(text []byte) (n int64, ok bool) {
	n, err := strconv.ParseInt(string(text), 10, 64)
	var room [20]byte
	return n, err == nil && bytes.Equal(strconv.AppendInt(room[:0], n, 10), text)
}
