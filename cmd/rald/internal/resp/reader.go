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

// Limits bound a client's commands. Each field must be above 0.
type Limits struct {
	// Arguments bounds the arguments of a command, its name included.
	Arguments int
	// Argument bounds the bytes of an argument.
	Argument int
	// Command bounds the bytes of a command, and of the reader's buffer.
	Command int
}

// ErrIncomplete reports that the buffer ends within a command, or has none.
var ErrIncomplete = errors.New("resp: the command is not complete")

// ProtocolError reports an unreadable command. It ends the connection: where the next
// command begins is unknown.
type ProtocolError struct{ Text string }

func (e *ProtocolError) Error() string { return "Protocol error: " + e.Text }

func fault(format string, args ...any) error {
	return &ProtocolError{Text: fmt.Sprintf(format, args...)}
}

// smallBuffer is for a connection that is idle or sends small commands.
const smallBuffer = 4 << 10

// maxHeaderLine bounds the bytes of a line with a number, without its end.
const maxHeaderLine = 32

// Reader finds the commands in a stream. It is for one goroutine.
type Reader struct {
	from   io.Reader
	limits Limits

	buffer []byte
	// start and end bound the unread bytes of the buffer.
	start, end int

	// The command at start, as far as it has come. examined counts its bytes that were looked at, each once.
	args     [][]byte
	spans    []span
	examined int
	// missing is the number of arguments of an array still to come.
	missing int
	array   bool
	// length is the length of the next argument, or -1 before its header.
	length int
}

// A span has offsets in its command.
type span struct{ from, to int }

// NewReader returns a reader of commands from r.
func NewReader(r io.Reader, limits Limits) *Reader {
	return &Reader{from: r, limits: limits, length: -1}
}

// SetLimits replaces the limits, from the next command on.
func (r *Reader) SetLimits(limits Limits) { r.limits = limits }

// Fill reads once from the stream. It returns that read's error if no byte came.
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

// makeRoom makes room for at least a byte. A command that is incomplete for Next is shorter than
// the limit, so the buffer exceeds it by at most a read.
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

// HasRoom reports whether the buffer holds less than the longest command.
func (r *Reader) HasRoom() bool { return r.end-r.start < r.limits.Command }

// Next returns the arguments of the next command in the buffer, at least one, valid until Fill. The
// error is ErrIncomplete, or a *ProtocolError that ends the use of the reader.
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
		if r.examined > r.limits.Command {
			return nil, r.tooLong()
		}
		r.args = r.args[:0]
		for _, span := range r.spans {
			r.args = append(r.args, r.buffer[r.start+span.from:r.start+span.to:r.start+span.to])
		}
		r.start += r.examined
		r.examined, r.missing, r.array, r.length, r.spans = 0, 0, false, -1, r.spans[:0]
		if len(r.args) > 0 {
			return r.args, nil
		}
		// Skip an empty line or array.
	}
}

func (r *Reader) tooLong() error {
	return fault("the command is too long: at most %d bytes are accepted", r.limits.Command)
}

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

func (r *Reader) argument() (done bool, err error) {
	rest := r.buffer[r.start+r.examined : r.end]
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
		rest = r.buffer[r.start+r.examined : r.end]
	}
	if len(rest) < r.length+2 {
		return false, nil
	}
	if rest[r.length] != '\r' || rest[r.length+1] != '\n' {
		return false, fault("an argument of %d bytes does not end there", r.length)
	}
	r.spans = append(r.spans, span{r.examined, r.examined + r.length})
	r.examined += r.length + 2
	r.length = -1
	return true, nil
}

// header reads the number of a line such as "*3". ok is false if incomplete or with an error.
func (r *Reader) header(invalid, tooLong string) (n int64, ok bool, err error) {
	line := r.buffer[r.start+r.examined : r.end]
	end := bytes.IndexByte(line[:min(len(line), maxHeaderLine+2)], '\n')
	if end < 0 {
		if len(line) > maxHeaderLine+1 {
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
	r.examined += end + 1
	return n, true, nil
}

// inline reads a command that people type: a line of words.
func (r *Reader) inline() (done bool, err error) {
	line := r.buffer[r.start:r.end]
	end := bytes.IndexByte(line[r.examined:], '\n')
	if end < 0 {
		r.examined = len(line)
		if r.examined > r.limits.Argument {
			return false, fault("too big inline request")
		}
		return false, nil
	}
	end += r.examined
	r.examined = end + 1
	if end > r.limits.Argument {
		return false, fault("too big inline request")
	}
	return true, r.words(bytes.TrimSuffix(line[:end], []byte{'\r'}))
}

// words finds the words of a line. Quotes may begin within a word and contain spaces; their end
// ends the word. Without quotes and escapes a word is no longer, and replaces itself.
func (r *Reader) words(line []byte) error {
	for next := 0; ; {
		for next < len(line) && isSpace(line[next]) {
			next++
		}
		if next == len(line) {
			return nil
		}
		if len(r.spans) == r.limits.Arguments {
			return fault("at most %d arguments are accepted", r.limits.Arguments)
		}
		from, to := next, next
		for next < len(line) && !isSpace(line[next]) {
			char := line[next]
			next++
			if char != '"' && char != '\'' {
				line[to] = char
				to++
				continue
			}
			for next < len(line) && line[next] != char {
				var n int
				line[to], n = unescaped(line[next:], char)
				next += n
				to++
			}
			if next++; next > len(line) || next < len(line) && !isSpace(line[next]) {
				return fault("unbalanced quotes in request")
			}
		}
		r.spans = append(r.spans, span{from, to})
	}
}

func isSpace(char byte) bool { return char == ' ' || '\t' <= char && char <= '\r' }

// unescaped returns the first byte of a text in quotes q, and the length of its source. Single
// quotes have the escape \' only. Double quotes have \n, \r, \t, \b, \a and \xHH, and \ before any
// other byte is that byte.
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

// Int parses a decimal int64 as Redis does: without plus sign, spaces or leading zeros.
func Int(text []byte) (n int64, ok bool) {
	if n, ok := Digits(text); ok && (text[0] != '0' || len(text) == 1) {
		return n, true
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	var room [20]byte
	return n, err == nil && bytes.Equal(strconv.AppendInt(room[:0], n, 10), text)
}

// Digits parses 1 to 18 decimal digits. It is for numbers of every command: strconv.ParseInt took
// 5 times as long.
func Digits(text []byte) (n int64, ok bool) {
	if len(text) == 0 || len(text) > 18 {
		return 0, false
	}
	for _, digit := range text {
		digit -= '0'
		if digit > 9 {
			return 0, false
		}
		n = n*10 + int64(digit)
	}
	return n, true
}
