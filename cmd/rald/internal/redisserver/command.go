package redisserver

import (
	"maps"
	"slices"
)

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
	for i, b := range name {
		if 'A' <= b && b <= 'Z' {
			b += 'a' - 'A'
		}
		lower[i] = b
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
