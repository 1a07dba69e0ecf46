package resp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var small = Limits{Arguments: 4, Argument: 64, Command: 256}

// readAll returns a stream's commands as text, until its end or a fault.
func readAll(from io.Reader, limits Limits) (commands []string, err error) {
	r := NewReader(from, limits)
	for {
		args, err := r.Next()
		switch {
		case err == nil:
			commands = append(commands, fmt.Sprintf("%q", args))
		case errors.Is(err, ErrIncomplete):
			if err := r.Fill(); err != nil {
				return commands, err
			}
		default:
			return commands, err
		}
	}
}

func TestReadsCommands(t *testing.T) {
	for _, c := range []struct {
		stream string
		want   []string
	}{
		{"*1\r\n$4\r\nPING\r\n", []string{`["PING"]`}},
		{"*2\r\n$4\r\nECHO\r\n$2\r\n\r\n\r\n", []string{`["ECHO" "\r\n"]`}},
		{"*2\r\n$3\r\nDEL\r\n$0\r\n\r\n", []string{`["DEL" ""]`}},
		{"PING\r\n", []string{`["PING"]`}},
		{"PING\n", []string{`["PING"]`}},
		{"  SET \"a b\" 'c' \r\n", []string{`["SET" "a b" "c"]`}},
		{`PING "a\"b" "\\"` + "\r\n", []string{`["PING" "a\"b" "\\"]`}},
		{`a "\n\r\t\b\a" "\x00\xfF"` + "\r\n", []string{`["a" "\n\r\t\b\a" "\x00\xff"]`}},
		{`"\q\x" "\xg0" "\x0"` + "\r\n", []string{`["qx" "xg0" "x0"]`}},
		{`'a\'b' '\n\"' '\\ '` + "\r\n", []string{`["a'b" "\\n\\\"" "\\\\ "]`}},
		{`a\n b"c d" e'f' ''` + "\r\n", []string{`["a\\n" "bc d" "ef" ""]`}},
		{"a\v b\fc\r\n", []string{`["a" "b" "c"]`}},
		{"\r\n\r\n*0\r\n*-1\r\nPING\r\n", []string{`["PING"]`}},
		{"*1\r\n$4\r\nPING\r\nPING x\r\n*1\r\n$1\r\na\r\n", []string{`["PING"]`, `["PING" "x"]`, `["a"]`}},
	} {
		whole, err := readAll(strings.NewReader(c.stream), small)
		assert.Equal(t, io.EOF, err, "%q", c.stream)
		assert.Equal(t, c.want, whole, "%q", c.stream)
		pieces, err := readAll(iotest.OneByteReader(strings.NewReader(c.stream)), small)
		assert.Equal(t, io.EOF, err, "%q", c.stream)
		assert.Equal(t, c.want, pieces, "%q in pieces", c.stream)
	}
}

func TestBytesThatAreNoCommandAreRefused(t *testing.T) {
	for stream, want := range map[string]string{
		"*5\r\n":                            "invalid multibulk length: at most 4 arguments are accepted",
		"*x\r\n":                            "invalid multibulk length",
		"*01\r\n":                           "invalid multibulk length",
		"*1\n":                              "invalid multibulk length",
		"*" + strings.Repeat("1", 40):       "too big mbulk count string",
		"*1\r\n+OK\r\n":                     `expected '$', got '+'`,
		"*1\r\n*1\r\n":                      `expected '$', got '*'`,
		"*1\r\n$-1\r\n":                     "invalid bulk length",
		"*1\r\n$65\r\n":                     "invalid bulk length: at most 64 bytes are accepted",
		"*1\r\n$" + strings.Repeat("9", 40): "too big bulk count string",
		"*1\r\n$2\r\nabc\r\n":               "an argument of 2 bytes does not end there",
		strings.Repeat("a", 100) + "\r\n":   "too big inline request",
		strings.Repeat("a", 100):            "too big inline request",
		"a 'b\r\n":                          "unbalanced quotes in request",
		"a 'b'c\r\n":                        "unbalanced quotes in request",
		`a "b\"` + "\r\n":                   "unbalanced quotes in request",
		`a 'b\'` + "\r\n":                   "unbalanced quotes in request",
		`a "b"c` + "\r\n":                   "unbalanced quotes in request",
		`a b"` + "\r\n":                     "unbalanced quotes in request",
		"a b c d e\r\n":                     "at most 4 arguments are accepted",
		"*4\r\n" + strings.Repeat("$64\r\n"+strings.Repeat("a", 64)+"\r\n", 4): "the command is too long: at most 256 bytes are accepted",
	} {
		for name, from := range map[string]io.Reader{
			"whole": strings.NewReader(stream), "in pieces": iotest.OneByteReader(strings.NewReader(stream)),
		} {
			commands, err := readAll(from, small)
			var fault *ProtocolError
			if assert.ErrorAs(t, err, &fault, "%.80q %s", stream, name) {
				assert.Equal(t, want, fault.Text, "%.80q %s", stream, name)
			}
			assert.Empty(t, commands, "%.80q %s", stream, name)
		}
	}
}

// Each further byte costs a look at itself alone.
func TestHalfCommandIsLookedAtOnce(t *testing.T) {
	r := NewReader(nil, Limits{Arguments: 1000, Argument: 10, Command: 1 << 20})
	r.buffer = []byte("*1000\r\n" + strings.Repeat("$1\r\na\r\n", 999))
	for end := range r.buffer {
		r.end = end
		_, err := r.Next()
		require.ErrorIs(t, err, ErrIncomplete)
		require.GreaterOrEqual(t, r.examined, end-len("$1\r\na\r\n"), "it forgets what it has seen")
	}
}

// Promise: Memory for a client's input is bounded.
func TestBufferIsBoundedAndGivenBack(t *testing.T) {
	limits := Limits{Arguments: 2, Argument: 1 << 20, Command: 1<<20 + 100}
	long := fmt.Sprintf("*1\r\n$%d\r\n%s\r\n", 1<<20, strings.Repeat("a", 1<<20))
	r := NewReader(strings.NewReader(long+"PING\r\n"), limits)
	for _, want := range []int{1 << 20, len("PING")} {
		args, err := r.Next()
		for ; err != nil; args, err = r.Next() {
			require.NoError(t, r.Fill())
			require.LessOrEqual(t, len(r.buffer), 2*limits.Command)
		}
		assert.Len(t, args[0], want)
	}
	_, err := r.Next()
	require.ErrorIs(t, err, ErrIncomplete)
	require.ErrorIs(t, r.Fill(), io.EOF)
	assert.Len(t, r.buffer, smallBuffer, "the room of a long command is kept")
}

// Promise: Reading a pipeline allocates nothing.
func TestPipelineAllocatesNothing(t *testing.T) {
	stream := bytes.Repeat([]byte("*3\r\n$4\r\nECHO\r\n$1\r\na\r\n$2\r\nbc\r\n"), 100)
	from := bytes.NewReader(stream)
	r, w := NewReader(from, small), NewWriter(io.Discard)
	run := func() {
		from.Reset(stream)
		for n := 0; n < 100; {
			args, err := r.Next()
			if err != nil {
				_ = r.Fill()
				continue
			}
			n++
			w.Array(2)
			w.Bulk(string(args[1]))
			w.Int(int64(len(args)))
		}
		_ = w.Flush()
	}
	run()
	assert.Zero(t, testing.AllocsPerRun(100, run))
}

// Numbers have one form each: no plus sign, and no leading zeros.
func TestIntReadsOneFormOfANumber(t *testing.T) {
	for _, text := range []string{
		"0", "1", "-1", "120", "9223372036854775807", "-9223372036854775808",
		"", "-", "+1", "01", "-0", "1a", " 1", "1 ", "9223372036854775808", "-9223372036854775809", "99999999999999999999",
	} {
		want, err := strconv.ParseInt(text, 10, 64)
		n, ok := Int([]byte(text))
		assert.Equal(t, err == nil && strconv.FormatInt(want, 10) == text, ok, "%q", text)
		assert.True(t, !ok || n == want, "%q", text)
	}
}

func TestRepliesFollowTheProtocolVersion(t *testing.T) {
	write := func(three bool) string {
		var b bytes.Buffer
		w := NewWriter(&b)
		w.Three = three
		w.Status("OK")
		w.Error("ERR a\r\nb")
		w.Int(-5)
		w.Bulk("a\r\nb")
		w.Array(1)
		w.Map(1)
		w.Bool(true)
		w.Bool(false)
		w.Null()
		require.NoError(t, w.Flush())
		return b.String()
	}
	assert.Equal(t, "+OK\r\n-ERR a  b\r\n:-5\r\n$4\r\na\r\nb\r\n*1\r\n*2\r\n:1\r\n:0\r\n$-1\r\n", write(false))
	assert.Equal(t, "+OK\r\n-ERR a  b\r\n:-5\r\n$4\r\na\r\nb\r\n*1\r\n%1\r\n#t\r\n#f\r\n_\r\n", write(true))
}

type failing struct{ n int }

func (f *failing) Write([]byte) (int, error) {
	f.n++
	return 0, io.ErrClosedPipe
}

func TestWriterStopsAtTheFirstError(t *testing.T) {
	to := &failing{}
	w := NewWriter(to)
	for range 3 {
		w.Status("OK")
		assert.ErrorIs(t, w.Flush(), io.ErrClosedPipe)
	}
	assert.Equal(t, 1, to.n)
}

// The same commands whole and a byte at a time, no panic, and a bounded buffer.
func FuzzReader(f *testing.F) {
	for _, seed := range []string{
		"*2\r\n$4\r\nECHO\r\n$2\r\nab\r\n", "PING 'a b'\r\n", `PING "\"\x4a" '\''` + "\n", "*-1\r\n\r\n", "*1\r\n$3\r\nab", "*9\r\n", "$1\r\n", "\x00\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		whole, err := readAll(bytes.NewReader(stream), small)
		pieces, err2 := readAll(iotest.OneByteReader(bytes.NewReader(stream)), small)
		assert.Equal(t, whole, pieces)
		assert.Equal(t, err.Error(), err2.Error())

		r := NewReader(bytes.NewReader(stream), small)
		for {
			args, err := r.Next()
			assert.LessOrEqual(t, len(r.buffer), smallBuffer+small.Command)
			for _, arg := range args {
				assert.LessOrEqual(t, len(arg), small.Argument)
			}
			assert.LessOrEqual(t, len(args), small.Arguments)
			if err != nil && (!errors.Is(err, ErrIncomplete) || r.Fill() != nil) {
				return
			}
		}
	})
}
