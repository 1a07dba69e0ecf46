package outgoing

import (
	"io"
	"net/http"
	"sync"

	"github.com/ral-limiter/ral/outgoing/internal/answer"
)

// usage is a response's body that ends its call's turn once the body is read or closed. usage
// settles the turn by the numbers of Options.Used in the body's JSON, if there are any, and
// releases it.
type usage[K comparable] struct {
	io.ReadCloser

	// mu is needed because Close may come during a Read.
	mu   sync.Mutex
	turn Turn[K]
	scan scanner
}

func newUsage[K comparable](body io.ReadCloser, names [][]string, turn Turn[K]) *usage[K] {
	u := &usage[K]{ReadCloser: body, turn: turn}
	for cost, of := range names {
		for _, name := range of {
			u.scan.numbers = append(u.scan.numbers, counted{name, cost, -1})
		}
	}
	return u
}

func (u *usage[K]) Read(buffer []byte) (n int, err error) {
	n, err = u.ReadCloser.Read(buffer)
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.scan.numbers) > 0 {
		u.scan.read(buffer[:n])
	}
	if err != nil {
		u.settle()
	}
	return n, err
}

// Close implements io.Closer.
func (u *usage[K]) Close() error {
	// The body is closed before another call may be sent.
	err := u.ReadCloser.Close()
	u.mu.Lock()
	defer u.mu.Unlock()
	u.settle()
	return err
}

// settle settles and releases the turn. Another call of settle does nothing.
func (u *usage[K]) settle() {
	used := [1 + maxUnits]int64{}
	for i := range used {
		used[i] = -1
	}
	for _, n := range u.scan.numbers {
		if n.value >= 0 {
			used[n.cost] = max(used[n.cost], 0) + n.value
		}
	}
	u.turn.Settle(used[:]...)
	u.turn.Release()
	u.turn = Turn[K]{}
}

// counted is a number in JSON with that name. value is below 0 until the number is read.
type counted struct {
	name string
	// cost is the index of the number's cost in the costs of Wait.
	cost  int
	value int64
}

// scanner finds numbers by name in JSON that comes in pieces, also in server-sent events. A name
// inside of a JSON string is not taken for a name, since its quotes are escaped.
type scanner struct {
	numbers []counted

	in position
	// text is the present or last JSON string, cut to a length that no name of Options.Used has.
	text []byte
	// value is the number made of the digits so far, or below 0 before the first digit.
	value int64
}

type position uint8

const (
	betweenTexts position = iota
	inText
	// escaped is in a JSON string, behind a backslash.
	escaped
	// afterText is behind a JSON string. If a colon follows, the string is a name.
	afterText
	// inValue is behind a name and its colon, or in the digits that follow.
	inValue
)

// maxName is the longest name in Options.Used, in bytes.
const maxName = 64

func (s *scanner) read(buffer []byte) {
	for _, char := range buffer {
		switch space := char == ' ' || char == '\t' || char == '\r'; {
		// No JSON string has a line break, so a string that began in this line was none.
		case char == '\n' && s.in <= escaped:
			s.in = betweenTexts
		case s.in == escaped:
			s.in = inText
		case s.in == inText && char == '"':
			s.in = afterText
		case s.in == inText:
			if len(s.text) <= maxName {
				s.text = append(s.text, char)
			}
			if char == '\\' {
				s.in = escaped
			}
		case (s.in == afterText || s.in == inValue && s.value < 0) && (space || char == '\n'):
		case s.in == afterText && char == ':':
			s.in, s.value = inValue, -1
		case s.in == inValue && '0' <= char && char <= '9':
			s.value = min(max(s.value, 0)*10+int64(char-'0'), answer.MaxCount)
		default:
			if s.in == inValue && s.value >= 0 {
				s.found()
			}
			if s.in = betweenTexts; char == '"' {
				s.in, s.text = inText, s.text[:0]
			}
		}
	}
}

// found records the number that was read for each entry with its name.
func (s *scanner) found() {
	for i := range s.numbers {
		if n := &s.numbers[i]; n.name == string(s.text) {
			n.value = s.value
		}
	}
}

// handOver returns the turn, for a response's body, and makes t the zero Turn.
func (t *Turn[K]) handOver() Turn[K] {
	given := *t
	*t = Turn[K]{}
	return given
}

// endWith replaces the response's body by a usage, which ends the turn. If there is no body, endWith releases the turn
// at once.
func endWith[K comparable](resp *http.Response, names [][]string, turn *Turn[K]) {
	if resp.Body == nil || resp.Body == http.NoBody {
		turn.Release()
		return
	}
	body := newUsage(resp.Body, names, turn.handOver())
	if both, ok := resp.Body.(io.Writer); ok && resp.StatusCode == http.StatusSwitchingProtocols {
		resp.Body = &duplex[K]{body, both}
		return
	}
	resp.Body = body
}

// duplex is the connection of a response that switches protocols, which may also be written to.
type duplex[K comparable] struct {
	*usage[K]
	io.Writer
}
