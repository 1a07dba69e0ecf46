package redistest

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/redis/rueidis"
)

// Line connects clients in a bubble of testing/synctest to a Redis outside. The bubble's clock
// stands still while Redis works, so a command takes as long as [Weather] says on any machine.
// Tests in a bubble have scripts read its clock in place of Redis's. [NewLine] makes it, [Option]
// connects by it. Any number of goroutines may use it.
type Line struct {
	addr string
	mu   struct {
		sync.Mutex
		weather Weather
		// changed is closed when the weather changes.
		changed chan struct{}
		conns   map[*carrier]struct{}
	}
}

// Weather is the state of a Line. The zero value carries everything at once.
type Weather struct {
	// Gone ends connections and refuses others, like a Redis that was killed.
	Gone bool
	// Deaf holds back all requests, like a stopped Redis, and Mute all answers, until changed.
	Deaf, Mute bool
	// Hole loses all requests and has dials wait. A connection that lost something carries nothing
	// more, and does not end.
	Hole bool
	// Asks and Answers are their times on the way.
	Asks, Answers time.Duration
	// Short, if positive, ends each connection after so many bytes of answers.
	Short int
}

// NewLine returns a line to the server. It must be called in the bubble of its clients.
func NewLine(server *Server) *Line {
	line := &Line{addr: server.Addr()}
	line.mu.changed, line.mu.conns = make(chan struct{}), map[*carrier]struct{}{}
	return line
}

// Option connects by the line, or by those to the nodes of a cluster.
func Option(lines ...*Line) rueidis.ClientOption {
	return rueidis.ClientOption{
		InitAddress: []string{lines[0].addr}, DisableCache: true, ForceSingleClient: len(lines) == 1,
		DialCtxFn: func(ctx context.Context, addr string, dialer *net.Dialer, _ *tls.Config) (net.Conn, error) {
			at := slices.IndexFunc(lines, func(line *Line) bool { return line.addr == addr })
			return lines[at].dial(ctx, dialer.Timeout)
		},
	}
}

// Set changes the weather.
func (l *Line) Set(weather Weather) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.weather = weather
	close(l.mu.changed)
	l.mu.changed = make(chan struct{})
	if weather.Gone {
		for carrier := range l.mu.conns {
			carrier.end()
		}
		clear(l.mu.conns)
	}
}

// now returns the weather, and a channel closed at its next change.
func (l *Line) now() (Weather, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.weather, l.mu.changed
}

func (l *Line) dial(ctx context.Context, within time.Duration) (net.Conn, error) {
	if within > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, within)
		defer cancel()
	}
	for w, changed := l.now(); w.Hole; w, changed = l.now() {
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if w, _ := l.now(); w.Gone {
		// The address is known.
		to, _ := net.ResolveTCPAddr("tcp", l.addr)
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: to, Err: syscall.ECONNREFUSED}
	}
	redis, err := net.Dial("tcp", l.addr)
	if err != nil {
		return nil, err
	}
	near, far := net.Pipe()
	c := &carrier{line: l, far: far, redis: redis, done: make(chan struct{})}
	c.end = sync.OnceFunc(func() {
		close(c.done)
		_ = far.Close()
		_ = redis.Close()
	})
	l.mu.Lock()
	l.mu.conns[c] = struct{}{}
	l.mu.Unlock()
	asks, answers := make(chan parcel, queued), make(chan parcel, queued)
	go c.receive(asks)
	go c.ask(asks, answers)
	go c.deliver(answers)
	return near, nil
}

// queued is more than a client has under way.
const queued = 1 << 14

// parcel is a command or an answer on its way.
type parcel struct {
	sent time.Time
	text []byte
}

// carrier is a connection, served by three goroutines.
type carrier struct {
	line       *Line
	far, redis net.Conn
	// end closes done.
	done chan struct{}
	end  func()
}

func (c *carrier) receive(asks chan<- parcel) {
	defer c.end()
	for reader := bufio.NewReader(c.far); ; {
		text, err := value(reader, nil)
		if err != nil {
			return
		}
		asks <- parcel{time.Now(), text}
	}
}

func (c *carrier) ask(asks <-chan parcel, answers chan<- parcel) {
	defer c.end()
	for reader, lost := bufio.NewReader(c.redis), false; ; {
		p, ok := c.next(asks, func(w Weather) (bool, time.Duration) { return w.Deaf, w.Asks })
		if !ok {
			return
		}
		if w, _ := c.line.now(); w.Hole {
			lost = true
		}
		if lost {
			continue
		}
		if _, err := c.redis.Write(p.text); err != nil {
			return
		}
		text, err := value(reader, nil)
		if err != nil {
			return
		}
		answers <- parcel{time.Now(), text}
	}
}

func (c *carrier) deliver(answers <-chan parcel) {
	defer c.end()
	for delivered := 0; ; {
		parcel, ok := c.next(answers, func(w Weather) (bool, time.Duration) { return w.Mute, w.Answers })
		if !ok {
			return
		}
		weather, _ := c.line.now()
		if weather.Short > 0 && delivered+len(parcel.text) > weather.Short {
			_, _ = c.far.Write(parcel.text[:max(weather.Short-delivered, 0)])
			return
		}
		if delivered += len(parcel.text); weather.Short == 0 {
			delivered = 0
		}
		if _, err := c.far.Write(parcel.text); err != nil {
			return
		}
	}
}

// next returns the next parcel on arrival, unless the connection ends. held reads the weather.
func (c *carrier) next(parcels <-chan parcel, held func(Weather) (bool, time.Duration)) (parcel parcel, ok bool) {
	select {
	case parcel = <-parcels:
	case <-c.done:
		return parcel, false
	}
	for {
		w, changed := c.line.now()
		stays, takes := held(w)
		var arrives <-chan time.Time
		if !stays {
			rest := time.Until(parcel.sent.Add(takes))
			if rest <= 0 {
				return parcel, true
			}
			arrives = time.After(rest)
		}
		select {
		case <-arrives:
		case <-changed:
		case <-c.done:
			return parcel, false
		}
	}
}

// value reads a value of Redis's protocol and appends its bytes to text.
func value(reader *bufio.Reader, text []byte) ([]byte, error) {
	line, err := reader.ReadBytes('\n')
	if text = append(text, line...); err != nil || len(line) < 3 {
		return text, err
	}
	n, _ := strconv.Atoi(string(line[1 : len(line)-2]))
	switch line[0] {
	case '$', '=', '!':
		if n >= 0 {
			begin := len(text)
			text = append(text, make([]byte, n+2)...)
			_, err = io.ReadFull(reader, text[begin:])
		}
		return text, err
	case '%', '|':
		n *= 2
	case '*', '~', '>':
	case '+', '-', ':', '_', '#', ',', '(':
		return text, nil
	default:
		return text, fmt.Errorf("no value of Redis's: %q", line)
	}
	for range n {
		if text, err = value(reader, text); err != nil {
			return text, err
		}
	}
	return text, nil
}
