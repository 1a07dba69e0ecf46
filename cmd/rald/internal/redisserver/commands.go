package redisserver

import (
	"bytes"
	"strings"
)

func init() {
	commands = map[string]*command{}
	for _, c := range []command{
		{"cl.throttle", 1, -1, 1, 1, 1, []string{"write", "fast"}, false, (*conn).clThrottle, 0},
		{"ral.take", 3, -1, 1, -1, 3, []string{"write", "fast"}, false, (*conn).take, 0},
		{"ral.peek", 3, 3, 1, 1, 1, []string{"readonly", "fast"}, false, (*conn).peek, 0},
		{"ral.explain", 3, 3, 2, 2, 1, []string{"readonly", "fast"}, false, (*conn).explain, 0},
		{"ral.refund", 4, 4, 1, 1, 1, []string{"write", "fast"}, false, (*conn).refund, 0},
		{"ral.wait", 5, 5, 1, 1, 1, []string{"write", "blocking"}, false, (*conn).wait, 0},
		{"ral.reset", 3, 3, 1, 1, 1, []string{"write", "fast"}, false, (*conn).reset, 0},
		{"ral.change", 4, 4, 1, 1, 1, []string{"write", "fast"}, false, (*conn).change, 0},
		{"ral.reserve", 6, 7, 2, 2, 1, []string{"write", "fast"}, false, (*conn).reserve, 0},
		{"ral.commit", 5, 5, 2, 2, 1, []string{"write", "fast"}, false, (*conn).commit, 0},
		{"ral.extend", 5, 5, 2, 2, 1, []string{"write", "fast"}, false, (*conn).extend, 0},
		{"ral.release", 4, 4, 2, 2, 1, []string{"write", "fast"}, false, (*conn).release, 0},
		{"del", 2, -1, 1, -1, 1, []string{"write"}, false, (*conn).del, 0},
		{"unlink", 2, -1, 1, -1, 1, []string{"write"}, false, (*conn).del, 0},
		{"exists", 2, -1, 1, -1, 1, []string{"readonly", "fast"}, false, (*conn).exists, 0},
		{"ttl", 2, 2, 1, 1, 1, []string{"readonly", "fast"}, false, (*conn).ttl, 0},
		{"pttl", 2, 2, 1, 1, 1, []string{"readonly", "fast"}, false, (*conn).pttl, 0},
		{"type", 2, 2, 1, 1, 1, []string{"readonly", "fast"}, false, (*conn).kind, 0},
		{"scan", 2, 8, 0, 0, 0, []string{"readonly"}, false, (*conn).scan, 0},
		{"dbsize", 1, 1, 0, 0, 0, []string{"readonly"}, false, (*conn).dbsize, 0},
		{"info", 1, -1, 0, 0, 0, []string{"readonly"}, false, (*conn).info, 0},
		{"ping", 1, 2, 0, 0, 0, []string{"fast"}, false, (*conn).ping, 0},
		{"echo", 2, 2, 0, 0, 0, []string{"fast"}, false, (*conn).echo, 0},
		{"select", 2, 2, 0, 0, 0, []string{"fast"}, false, (*conn).selectDB, 0},
		{"client", 2, -1, 0, 0, 0, []string{"noscript"}, false, (*conn).client, 0},
		{"command", 1, -1, 0, 0, 0, []string{"readonly"}, false, (*conn).command, 0},
		{"config", 2, -1, 0, 0, 0, []string{"readonly"}, false, (*conn).configGet, 0},
		{"multi", 1, 1, 0, 0, 0, []string{"fast"}, false, (*conn).begin, 0},
		{"exec", 1, 1, 0, 0, 0, []string{"fast"}, false, (*conn).exec, 0},
		{"discard", 1, 1, 0, 0, 0, []string{"fast"}, false, (*conn).discard, 0},
		{"watch", 2, -1, 1, -1, 1, []string{"fast"}, false, (*conn).watch, 0},
		{"unwatch", 1, 1, 0, 0, 0, []string{"fast"}, false, (*conn).unwatch, 0},
		{"hello", 1, -1, 0, 0, 0, []string{"fast"}, true, (*conn).hello, 0},
		{"auth", 2, 3, 0, 0, 0, []string{"fast"}, true, (*conn).auth, 0},
		{"reset", 1, 1, 0, 0, 0, []string{"fast"}, true, (*conn).restart, 0},
		{"quit", 1, -1, 0, 0, 0, []string{"fast"}, true, (*conn).quit, 0},
	} {
		c.index = len(commands)
		commands[c.name] = &c
	}
}

func (c *conn) do(args [][]byte) {
	if !bytes.Equal(args[0], c.named) {
		c.named = append(c.named[:0], args[0][:min(len(args[0]), maxCommandName+1)]...)
		c.last = lookUp(args[0])
	}
	command := c.last
	errors := c.out.Errors()
	c.errors = errors
	if c.multi.refused && !c.multi.open && (command == nil || command.name != "multi") {
		// CLIENT CACHING is for the next command.
		c.multi.refused = false
	}
	switch {
	case command == nil && isHTTP(args[0]):
		// A browser posts here. The rest is not for this server.
		c.out.Error("ERR this is not an HTTP server")
		c.ending = true
	case !c.known && (command == nil || !command.greeting):
		c.out.Error("NOAUTH Authentication required.")
	case command == nil:
		c.out.Error("ERR unknown command " + quoted(args[0]) + ": rald has " + strings.Join(names(), ", "))
	case len(args) < command.minArgs || command.maxArgs >= 0 && len(args) > command.maxArgs:
		c.out.Error("ERR wrong number of arguments for '" + command.name + "' command")
	case c.multi.open && command.queues():
		if c.queue(command, args); c.out.Errors() == errors {
			// The command is counted when it is executed.
			return
		}
	default:
		command.run(c, args)
	}
	failed := c.out.Errors() > errors
	if failed && c.multi.open && (command == nil || command.queues()) {
		c.multi.refused = true
	}
	c.server.count(command, failed)
}

// isHTTP reports whether every HTTP request with a body from a page has such a line.
func isHTTP(name []byte) bool {
	return strings.EqualFold(string(name), "POST") || strings.EqualFold(string(name), "Host:")
}
