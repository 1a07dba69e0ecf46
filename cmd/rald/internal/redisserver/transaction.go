package redisserver

// transaction is the state between MULTI and EXEC or DISCARD. Its commands are refused, not queued:
// a client that sends them all at once learns from EXEC that none was executed.
type transaction struct {
	open    bool
	refused bool // it had a command
}

// inTransaction reports whether a transaction refuses do, which is nil if unknown.
func (c *conn) inTransaction(do *command) bool {
	if !c.multi.open {
		return false
	}
	if do != nil {
		switch do.name {
		case "exec", "discard", "reset", "quit":
			return false
		}
	}
	return true
}

func (c *conn) begin([][]byte) {
	c.multi.open = true
	c.out.Status("OK")
}

// exec is EXEC. Without commands it answers like Redis.
func (c *conn) exec([][]byte) {
	was := c.multi
	c.multi = transaction{}
	switch {
	case !was.open:
		c.out.Error("ERR EXEC without MULTI")
	case was.refused:
		c.out.Error("EXECABORT Transaction discarded because of previous errors: " + noTransactions)
	default:
		c.out.Array(0)
	}
}

const noTransactions = "rald carries out no transactions, so commands are sent without MULTI, in a pipeline if there are several"

func (c *conn) discard([][]byte) {
	if !c.multi.open {
		c.out.Error("ERR DISCARD without MULTI")
		return
	}
	c.multi = transaction{}
	c.out.Status("OK")
}
