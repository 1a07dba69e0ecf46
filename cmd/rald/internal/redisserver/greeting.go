package redisserver

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/ral-limiter/ral/cmd/rald/internal/families"
)

// Commands besides those that decide.

// version is a version of Redis: clients choose by it what they send.
const version = "7.0.0"

// hello is HELLO [2|3 [AUTH name password] [SETNAME name]].
func (c *conn) hello(args [][]byte) {
	three, known, name := c.out.Three, c.known, c.name
	if len(args) > 1 {
		switch string(args[1]) {
		case "2":
			three = false
		case "3":
			three = true
		default:
			c.out.Error("NOPROTO unsupported protocol version: 2 and 3 are accepted")
			return
		}
	}
	for i := 2; i < len(args); {
		switch option := strings.ToLower(string(args[i])); {
		case option == "auth" && i+2 < len(args):
			if !c.givesPassword(args[i+1], args[i+2]) {
				return
			}
			known = true
			i += 3
		case option == "setname" && i+1 < len(args):
			if !isClientName(args[i+1]) {
				c.wantName(args[i+1])
				return
			}
			name = string(args[i+1])
			i += 2
		default:
			c.out.Error("ERR Syntax error in HELLO option " + quoted(args[i]))
			return
		}
	}
	if !known {
		c.out.Error("NOAUTH HELLO needs AUTH name password, as the server has a password")
		return
	}
	c.admit()
	c.out.Three, c.name = three, name
	c.out.Map(7)
	for _, text := range []string{"server", "rald", "version", version} {
		c.out.Bulk(text)
	}
	c.out.Pair("proto", c.proto())
	c.out.Pair("id", c.id)
	for _, text := range []string{"mode", "standalone", "role", "master", "modules"} {
		c.out.Bulk(text)
	}
	c.out.Array(0)
}

// auth is AUTH [name] password. The only name is default.
func (c *conn) auth(args [][]byte) {
	name, password := []byte("default"), args[len(args)-1]
	if len(args) == 3 {
		name = args[1]
	}
	switch {
	case c.server.config.Password == "":
		c.out.Error("ERR AUTH was called, and the server has no password")
	case c.givesPassword(name, password):
		c.admit()
		c.out.Status("OK")
	}
}

// givesPassword reports whether name and password are right, or writes an error.
func (c *conn) givesPassword(name, password []byte) bool {
	guesses, addr := c.server.guesses, c.net.RemoteAddr()
	switch {
	// No password is needed.
	case guesses == nil:
		return true
	case !guesses.mayTry(addr):
		c.out.Error("ERR too many wrong passwords came from this address: try again later")
		c.ending = true
		return false
	case c.isPassword(name, password):
		return true
	}
	guesses.count(addr)
	c.wrong++
	c.ending = c.wrong >= maxWrong
	c.out.Error("WRONGPASS invalid username-password pair")
	return false
}

// isPassword reports whether name and password are right, in constant time.
func (c *conn) isPassword(name, password []byte) bool {
	want, got := sha256.Sum256([]byte(c.server.config.Password)), sha256.Sum256(password)
	right := subtle.ConstantTimeCompare(want[:], got[:]) == 1
	return right && string(name) == "default"
}

func (c *conn) admit() {
	c.known, c.wrong = true, 0
	c.in.SetLimits(c.server.config.Command)
}

// restart is RESET, back to the connection's first state.
func (c *conn) restart([][]byte) {
	c.out.Three, c.name, c.multi = false, "", transaction{}
	if c.known = c.server.config.Password == ""; !c.known {
		c.in.SetLimits(greeting)
	}
	c.out.Status("RESET")
}

func (c *conn) quit([][]byte) {
	c.out.Status("OK")
	c.ending = true
}

func (c *conn) ping(args [][]byte) {
	if len(args) == 1 {
		c.out.Status("PONG")
		return
	}
	c.out.Bulk(string(args[1]))
}

func (c *conn) echo(args [][]byte) { c.out.Bulk(string(args[1])) }

// selectDB is SELECT index. The only database is 0.
func (c *conn) selectDB(args [][]byte) {
	if string(args[1]) != "0" {
		c.out.Error("ERR DB index is out of range: rald has database 0 alone")
		return
	}
	c.out.Status("OK")
}

// client has the CLIENT commands that clients send when they connect.
func (c *conn) client(args [][]byte) {
	switch sub := strings.ToLower(string(args[1])); {
	case sub == "setname" && len(args) == 3 && !isClientName(args[2]):
		c.wantName(args[2])
	case sub == "setname" && len(args) == 3:
		c.name = string(args[2])
		c.out.Status("OK")
	case sub == "getname" && len(args) == 2:
		if c.name == "" {
			c.out.Null()
			return
		}
		c.out.Bulk(c.name)
	case sub == "id" && len(args) == 2:
		c.out.Int(c.id)
	case sub == "setinfo" && len(args) == 4, sub == "no-evict" && len(args) == 3, sub == "no-touch" && len(args) == 3:
		c.out.Status("OK")
	case sub == "tracking":
		c.tracking(args[2:])
	case sub == "info" && len(args) == 2:
		c.out.Bulk(fmt.Sprintf("id=%d addr=%s name=%s resp=%d\n", c.id, c.net.RemoteAddr(), c.name, c.proto()))
	case sub == "caching":
		// A client that ignores the error would cache the replies of the transaction that follows.
		c.multi.refused = true
		c.out.Error("ERR no reply may be cached by clients: rald has no CLIENT CACHING")
	default:
		c.out.Error("ERR unknown subcommand " + quoted(args[1]) + ": rald has CLIENT SETNAME, GETNAME, ID, INFO, SETINFO, TRACKING, NO-EVICT and NO-TOUCH")
	}
}

// tracking is CLIENT TRACKING OFF, or ON OPTIN [NOLOOP]. With OPTIN the server tracks keys only
// after CLIENT CACHING YES, which does not exist here. So no client may cache a reply.
func (c *conn) tracking(options [][]byte) {
	on, optIn := false, false
	for i, option := range options {
		switch option := strings.ToLower(string(option)); {
		case i == 0 && (option == "on" || option == "off"):
			on = option == "on"
		case i > 0 && option == "optin":
			optIn = true
		case i > 0 && option == "noloop":
		default:
			options = nil
		}
	}
	if len(options) == 0 || on && !optIn {
		c.out.Error("ERR no reply may be cached by clients: CLIENT TRACKING OFF and CLIENT TRACKING ON OPTIN are accepted")
		return
	}
	c.out.Status("OK")
}

// maxName bounds the bytes of a client's name.
const maxName = 4 << 10

// isClientName reports whether CLIENT INFO can show a name in its line, and the name is not above
// maxName. The empty name is none.
func isClientName(name []byte) bool {
	if len(name) > maxName {
		return false
	}
	for _, char := range name {
		if char < '!' || char > '~' {
			return false
		}
	}
	return true
}

func (c *conn) wantName(arg []byte) {
	c.out.Error("ERR the client name is " + quoted(arg) + ": printable ASCII without spaces is accepted, up to " + itoa(maxName) + " bytes")
}

func (c *conn) proto() int64 {
	if c.out.Three {
		return 3
	}
	return 2
}

// command is COMMAND [COUNT | LIST | INFO name ... | DOCS].
func (c *conn) command(args [][]byte) {
	sub := ""
	if len(args) > 1 {
		sub = strings.ToLower(string(args[1]))
	}
	switch all := names(); sub {
	case "":
		c.out.Array(len(all))
		for _, name := range all {
			c.describe(commands[name])
		}
	case "count":
		c.out.Int(int64(len(all)))
	case "list":
		c.out.Array(len(all))
		for _, name := range all {
			c.out.Bulk(name)
		}
	case "info":
		c.out.Array(len(args) - 2)
		for _, name := range args[2:] {
			c.describe(lookUp(name))
		}
	case "docs":
		c.out.Map(0)
	default:
		c.out.Error("ERR unknown subcommand " + quoted(args[1]) + ": rald has COMMAND COUNT, LIST, INFO and DOCS")
	}
}

// describe describes a command, or writes null for nil.
func (c *conn) describe(one *command) {
	if one == nil {
		c.out.Null()
		return
	}
	c.out.Array(6)
	c.out.Bulk(one.name)
	arity := one.minArgs
	if arity != one.maxArgs {
		arity = -arity
	}
	c.out.Int(int64(arity))
	c.out.Array(len(one.flags))
	for _, flag := range one.flags {
		c.out.Status(flag)
	}
	c.out.Int(int64(one.first))
	c.out.Int(int64(one.last))
	c.out.Int(int64(one.step))
}

// configGet is CONFIG GET, as in redis-benchmark. Clients see and change no configuration.
func (c *conn) configGet(args [][]byte) {
	if !strings.EqualFold(string(args[1]), "get") {
		c.out.Error("ERR unknown subcommand " + quoted(args[1]) + ": rald has CONFIG GET, which is empty")
		return
	}
	c.out.Map(0)
}

// info is INFO [section ...], always with all sections.
func (c *conn) info([][]byte) {
	server := c.server
	var builder strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&builder, format+"\r\n", args...) }
	line("# Server")
	line("redis_version:%s", version)
	line("server_name:rald")
	line("redis_mode:standalone")
	line("go_version:%s", runtime.Version())
	line("uptime_in_seconds:%d", int64(time.Since(server.started).Seconds()))
	line("")
	line("# Clients")
	line("connected_clients:%d", server.clients.Load())
	line("maxclients:%d", server.config.Clients)
	line("")
	line("# Stats")
	line("total_connections_received:%d", server.total.Load())
	line("total_commands_processed:%d", server.Stats().total())
	line("rejected_connections:%d", server.refused.Load())
	line("")
	line("# Replication")
	line("role:master")
	line("connected_slaves:0")
	line("")
	line("# Configuration")
	failing, why := 0, ""
	if err := server.config.Reloads.Fault(); err != nil {
		failing, why = 1, strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	line("configuration_failing:%d", failing)
	line("configuration_error:%s", why)
	line("")
	line("# Backend")
	if server.config.Families.Fleet() != nil {
		infoShared(server.config.Families, line)
		c.out.Bulk(builder.String())
		return
	}
	line("backend:engine")
	line("")
	line("# Limits")
	keys := 0
	for family := range server.config.Families.All() {
		stats := families.EngineOf(family).Stats()
		keys += stats.Keys
		line("%s:keys=%d,admitted=%d,refused=%d,evicted=%d,forgiven=%d", strings.ReplaceAll(family.Limit().String(), " ", "_"),
			stats.Keys, stats.Admitted, stats.Refused, stats.Evicted, stats.Forgiven)
	}
	line("")
	line("# Keyspace")
	line("db0:keys=%d,expires=0,avg_ttl=0", keys)
	c.out.Bulk(builder.String())
}

func infoShared(keep *families.Families, line func(format string, args ...any)) {
	shared := keep.Fleet()
	mode := "exact"
	if shared.Leased {
		mode = "leased"
	}
	away, why, servers := 0, "", 0
	for family := range keep.All() {
		if err := family.Health(); err != nil && away == 0 {
			away, why = 1, strings.Join(strings.Fields(err.Error()), " ")
		}
		servers = max(servers, family.(families.InRedis).Fleet().Stats().Servers)
	}
	line("backend:redis")
	line("backend_name:%s", shared.Name)
	line("backend_mode:%s", mode)
	line("backend_outage:%s", shared.OutageName())
	line("backend_servers:%d", servers)
	line("backend_failing:%d", away)
	line("backend_error:%s", why)
	line("")
	line("# Limits")
	for family := range keep.All() {
		stats := family.(families.InRedis).Fleet().Stats()
		line("%s:admitted=%d,refused=%d,redis=%d,leased=%d,share=%d,open=%d,closed=%d", strings.ReplaceAll(family.Limit().String(), " ", "_"),
			stats.Admitted, stats.Refused, stats.Exact, stats.Leased, stats.Local, stats.Open, stats.Closed)
	}
}
