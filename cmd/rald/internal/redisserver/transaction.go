package redisserver

// transaction is the state between MULTI and EXEC or DISCARD. Commands in it are refused rather
// than queued: a client that sends them all before it reads an answer learns from EXEC that none
// was carried out.
type transaction struct {
	open    bool
	refused bool // a command has come in it
}

// inTransaction reports whether a command is refused because the client is in a transaction. do
// is nil for a command that there is not.
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

// begin is MULTI.
func (c *conn) begin([][]byte) {
	c.multi.open = true
	c.out.Status("OK")
}

// exec is EXEC. Without commands in the transaction it answers as Redis does.
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

// discard is DISCARD.
func (c *conn) discard([][]byte) {
	if !c.multi.open {
		c.out.Error("ERR DISCARD without MULTI")
		return
	}
	c.multi = transaction{}
	c.out.Status("OK")
}
