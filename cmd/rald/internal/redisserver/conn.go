package redisserver

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"time"

	"github.com/ral-limiter/ral/cmd/rald/internal/configured"
	"github.com/ral-limiter/ral/cmd/rald/internal/families"
	"github.com/ral-limiter/ral/cmd/rald/internal/resp"
	"github.com/ral-limiter/ral/policy"
)

type conn struct {
	server *Server
	net    net.Conn
	in     *resp.Reader
	out    *resp.Writer
	id     int64
	reads  deadline
	writes deadline

	// call is the present command, on configured limits.
	call configured.Call
	// errors is the number of errors written before the present command.
	errors uint64

	multi transaction
	name  string
	// known means that the client has given the password, or that none is needed.
	known bool
	// wrong counts the wrong passwords since known was set.
	wrong int
	// ending means that the connection ends after the replies are sent.
	ending bool

	// named is the name of the last command, which most clients repeat, or the beginning of a name
	// that is too long for one. last is the command of that name, or nil.
	named []byte
	last  *command

	// throttle is the limit of the last CL.THROTTLE, most clients' only limit. Families.Of has
	// returned its family, so that it never ends, or it is nil.
	throttle struct {
		args   [3]int64
		limit  policy.Policy
		family families.Family
	}
}

func (c *conn) interrupt() { _ = c.net.SetReadDeadline(time.Unix(1, 0)) }

func (c *conn) full() error {
	if !c.out.IsFull() {
		return nil
	}
	return c.flush()
}

// flush sends the replies. A client that does not read them loses its connection.
func (c *conn) flush() error {
	if c.out.Buffered() == 0 {
		return nil
	}
	c.writes.after(c.server.config.Within)
	return c.out.Flush()
}

// deadline is set as seldom as possible: for each command it would take a twentieth of a lone
// command's time.
type deadline struct {
	when time.Time
	set  func(time.Time) error
}

// after sets the deadline to at least d from now, and at most an eighth of d more.
func (l *deadline) after(d time.Duration) {
	now := time.Now()
	if left := l.when.Sub(now); left < d || left > d+d/8 {
		l.when = now.Add(d + d/8)
		_ = l.set(l.when)
	}
}

// errSentMore ends a wait with a full reader's buffer: only reading shows that a client left.
var errSentMore = errors.New("the client sent more than is kept while it waits, so its connection ends")

// fullGrace is how long a call goes on with a full reader's buffer. The client may have sent a long
// pipeline, and most calls do not wait.
const fullGrace = time.Second

// waiting calls f with a context that ends when the client leaves, the server ends, or f waits
// fullGrace with a full reader's buffer. In the last case the connection ends after the reply, if f
// has given up. The present command's arguments are invalid after it.
func (c *conn) waiting(f func(ctx context.Context) error) {
	ctx, cancel := context.WithCancelCause(c.server.closing)
	defer cancel(nil)
	if c.flush() != nil {
		return
	}
	// The deadline is set anew after this.
	c.reads.when = time.Time{}
	_ = c.net.SetReadDeadline(time.Time{})
	// The reader's buffer keeps the client's bytes meanwhile.
	done, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		for c.in.HasRoom() {
			if err := c.in.Fill(); err != nil {
				cancel(err)
				return
			}
		}
		grace := time.NewTimer(fullGrace)
		defer grace.Stop()
		select {
		case <-done:
		case <-grace.C:
			cancel(errSentMore)
		}
	}()
	err := f(ctx)
	close(done)
	c.interrupt()
	<-watched
	c.ending = c.ending || err != nil && errors.Is(context.Cause(ctx), errSentMore)
}

// transaction is the state between MULTI and EXEC or DISCARD.
type transaction struct {
	open bool
	// refused means that a command cannot be executed, so EXEC executes none.
	refused bool
	queued  []queuedCommand
	// size is the bytes of arguments that are no keys.
	size int
	// keys is the bytes of keys.
	keys int
	// number is the number of arguments.
	number int
}

type queuedCommand struct {
	do   *command
	args [][]byte
}

type command struct {
	// name is in lower case.
	name string
	// minArgs and maxArgs count the name, too. maxArgs is -1 for any number.
	minArgs, maxArgs int
	// first, last and step are keys among the arguments, as COMMAND tells cluster clients.
	first, last, step int
	flags             []string
	// greeting means that the command may come before the password.
	greeting bool
	run      func(c *conn, args [][]byte)

	// index is the place in Server.commands.
	index int
}

// maxCommandName bounds the bytes of a command's name.
const maxCommandName = 32

// commands are by name in lower case.
var commands map[string]*command

func names() []string { return slices.Sorted(maps.Keys(commands)) }

func lookUp(name []byte) *command {
	if len(name) > maxCommandName {
		return nil
	}
	var lower [maxCommandName]byte
	for i, char := range name {
		if 'A' <= char && char <= 'Z' {
			char += 'a' - 'A'
		}
		lower[i] = char
	}
	return commands[string(lower[:len(name)])]
}

// queues reports whether a transaction executes the command later.
func (c *command) queues() bool {
	switch c.name {
	case "multi", "exec", "discard", "watch", "reset", "quit":
		return false
	}
	return true
}

// bounded returns a copy of the arguments with hashes in place of long keys, and the bytes of all
// keys.
func (c *command) bounded(args [][]byte) (_ [][]byte, keys int) {
	args = slices.Clone(args)
	for i := c.first; c.first > 0 && i < len(args) && (c.last < 0 || i <= c.last); i += c.step {
		args[i] = bounded(args[i])
		keys += len(args[i])
	}
	return args, keys
}
