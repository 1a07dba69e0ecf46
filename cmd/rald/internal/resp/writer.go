package resp

import (
	"io"
	"strconv"
)

// fullBuffer is the number of bytes after which replies are sent although more commands have come.
const fullBuffer = 16 << 10

// Writer writes replies into a buffer, which Flush sends. It is for one goroutine. After an error
// of the stream nothing is written, and Flush returns it.
type Writer struct {
	to     io.Writer
	buffer []byte
	err    error
	// errors counts the errors written.
	errors uint64
	// Three selects version 3 of the protocol. In version 2 a map is an array of its keys and
	// values, a bool an integer, and a null a string of length -1.
	Three bool
}

// NewWriter returns a writer to w in version 2.
func NewWriter(w io.Writer) *Writer { return &Writer{to: w} }

// Flush sends the buffer.
func (w *Writer) Flush() error {
	if w.err == nil && len(w.buffer) > 0 {
		_, w.err = w.to.Write(w.buffer)
	}
	if cap(w.buffer) > 2*fullBuffer {
		w.buffer = nil
	}
	w.buffer = w.buffer[:0]
	return w.err
}

// IsFull reports whether the buffer should be sent.
func (w *Writer) IsFull() bool { return len(w.buffer) >= fullBuffer }

// Buffered returns the number of bytes in the buffer.
func (w *Writer) Buffered() int { return len(w.buffer) }

// Status writes a short text without line ends, such as OK.
func (w *Writer) Status(text string) { w.line('+', text) }

// Error writes an error. Its first word is a code in capitals, as in "ERR syntax error". Line ends
// become spaces, so no text can begin another reply.
func (w *Writer) Error(text string) {
	w.errors++
	w.line('-', text)
}

// Errors returns the number of errors written.
func (w *Writer) Errors() uint64 { return w.errors }

func (w *Writer) line(kind byte, text string) {
	w.buffer = append(w.buffer, kind)
	from := len(w.buffer)
	w.buffer = append(w.buffer, text...)
	for i, char := range w.buffer[from:] {
		if char == '\r' || char == '\n' {
			w.buffer[from+i] = ' '
		}
	}
	w.end()
}

// Int writes an integer.
func (w *Writer) Int(n int64) {
	w.buffer = strconv.AppendInt(append(w.buffer, ':'), n, 10)
	w.end()
}

// Bulk writes a string of any bytes.
func (w *Writer) Bulk(text string) {
	w.header('$', len(text))
	w.buffer = append(w.buffer, text...)
	w.end()
}

// Array begins an array: write n elements next.
func (w *Writer) Array(n int) { w.header('*', n) }

// Map begins a map: write n pairs next, a key, its value, and so on.
func (w *Writer) Map(n int) {
	if w.Three {
		w.header('%', n)
		return
	}
	w.header('*', 2*n)
}

// Pair writes a name and an integer.
func (w *Writer) Pair(name string, n int64) {
	w.Bulk(name)
	w.Int(n)
}

// Bool writes a bool.
func (w *Writer) Bool(b bool) {
	switch {
	case !w.Three && b:
		w.Int(1)
	case !w.Three:
		w.Int(0)
	case b:
		w.buffer = append(w.buffer, "#t\r\n"...)
	default:
		w.buffer = append(w.buffer, "#f\r\n"...)
	}
}

// Null writes the absence of a value.
func (w *Writer) Null() {
	if w.Three {
		w.buffer = append(w.buffer, "_\r\n"...)
		return
	}
	w.buffer = append(w.buffer, "$-1\r\n"...)
}

func (w *Writer) header(kind byte, n int) {
	w.buffer = strconv.AppendInt(append(w.buffer, kind), int64(n), 10)
	w.end()
}

func (w *Writer) end() { w.buffer = append(w.buffer, '\r', '\n') }
