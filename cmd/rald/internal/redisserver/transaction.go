package redisserver

import "slices"

// transaction is the state between MULTI and EXEC or DISCARD.
type transaction struct {
	open    bool
	refused bool // a command cannot be executed, so EXEC executes none
	queued  []queuedCommand
	size    int // bytes of arguments
	number  int // of arguments
}

// mostQueued is how many times as many arguments a transaction may have as a command. An empty
// argument has no bytes, and takes memory.
const mostQueued = 8

type queuedCommand struct {
	do   *command
	args [][]byte
}

// queues reports whether a transaction executes the command later.
func (c *command) queues() bool {
	switch c.name {
	case "multi", "exec", "discard", "watch", "reset", "quit":
		return false
	}
	return true
}

// bounded returns a copy of the arguments with hashes in place of long keys.
func (c *command) bounded(args [][]byte) [][]byte {
	args = slices.Clone(args)
	if c.first == 0 {
		return args
	}
	for i := c.first; i < len(args) && (c.last < 0 || i <= c.last); i += c.step {
		args[i] = bounded(args[i])
	}
	return args
}

// queue keeps the command for EXEC. All commands together have at most the bytes of one, and
// mostQueued times its arguments. Long keys count as their hashes, so that no single client's key
// is an error for the whole transaction.
func (c *conn) queue(do *command, args [][]byte) {
	size, most := 0, &c.server.config.Command
	args = do.bounded(args)
	for _, arg := range args {
		size += len(arg)
	}
	switch {
	case do.greeting || do.name == "ral.wait":
		c.out.Error("ERR '" + do.name + "' is not executed in a transaction")
		return
	case len(c.multi.queued) == most.Arguments || c.multi.size+size > most.Command || c.multi.number+len(args) > mostQueued*most.Arguments:
		c.out.Error("ERR a transaction has at most " + itoa(int64(most.Arguments)) + " commands and " + itoa(int64(most.Command)) + " bytes, in " +
			itoa(int64(mostQueued*most.Arguments)) + " arguments")
		return
	}
	// The arguments are the reader's.
	bytes := make([]byte, 0, size)
	for i, arg := range args {
		bytes = append(bytes, arg...)
		args[i] = bytes[len(bytes)-len(arg):]
	}
	c.multi.queued, c.multi.size = append(c.multi.queued, queuedCommand{do, args}), c.multi.size+size
	c.multi.number += len(args)
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
	for _, q := range was.queued {
		errors := c.out.Errors()
		q.do.run(c, q.args)
		c.call.End()
		c.server.count(q.do, c.out.Errors() > errors)
		_ = c.full() // the connection ends after EXEC
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
