package redisserver

import "fmt"

// maxQueued bounds the arguments of a transaction, in multiples of a command's. An empty argument has
// no bytes, and takes memory.
const maxQueued = 8

// queue keeps the command for EXEC. All commands together have at most the bytes of one, and
// maxQueued times its arguments. Keys are bounded apart, with room for as many of any length as a
// command has arguments: no choice of keys by clients is an error for a whole transaction.
func (c *conn) queue(command *command, args [][]byte) {
	bounds, size := &c.server.config.Command, 0
	args, keys := command.bounded(args)
	for _, arg := range args {
		size += len(arg)
	}
	next := c.multi
	next.size, next.keys, next.number = next.size+size-keys, next.keys+keys, next.number+len(args)
	maxKeys, maxNumber := bounds.Arguments*maxKey, maxQueued*bounds.Arguments
	switch {
	case command.greeting || command.name == "ral.wait":
		c.out.Error("ERR '" + command.name + "' is not executed in a transaction")
		return
	case len(next.queued) == bounds.Arguments || next.size > bounds.Command || next.keys > maxKeys || next.number > maxNumber:
		c.out.Error(fmt.Sprintf("ERR a transaction has at most %d commands and %d bytes, in %d arguments, besides %d bytes of keys",
			bounds.Arguments, bounds.Command, maxNumber, maxKeys))
		return
	}
	// The arguments are the reader's.
	bytes := make([]byte, 0, size)
	for i, arg := range args {
		bytes = append(bytes, arg...)
		args[i] = bytes[len(bytes)-len(arg):]
	}
	next.queued = append(next.queued, queuedCommand{command, args})
	c.multi = next
	c.out.Status("QUEUED")
}

func (c *conn) begin([][]byte) {
	if c.multi.open {
		c.out.Error("ERR MULTI calls can not be nested")
		return
	}
	c.multi.open = true
	c.out.Status("OK")
}

// exec is EXEC. It executes the commands in order; commands of other connections may come between.
func (c *conn) exec([][]byte) {
	was := c.multi
	c.multi = transaction{}
	switch {
	case !was.open:
		c.out.Error("ERR EXEC without MULTI")
		return
	case was.refused:
		c.out.Error("EXECABORT Transaction discarded because of previous errors.")
		return
	}
	c.out.Array(len(was.queued))
	for _, queuedCommand := range was.queued {
		c.errors = c.out.Errors()
		queuedCommand.do.run(c, queuedCommand.args)
		c.call.End()
		c.server.count(queuedCommand.do, c.failed())
		// The connection ends after EXEC.
		_ = c.full()
	}
}

func (c *conn) discard([][]byte) {
	if !c.multi.open {
		c.out.Error("ERR DISCARD without MULTI")
		return
	}
	c.multi = transaction{}
	c.out.Status("OK")
}

func (c *conn) watch([][]byte) {
	c.out.Error("ERR rald watches no keys: MULTI and EXEC need no WATCH, as each command is exact")
}

func (c *conn) unwatch([][]byte) { c.out.Status("OK") }
