package redisserver

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/cmd/rald/internal/configured"
	"github.com/ral-limiter/ral/cmd/rald/internal/families"
	"github.com/ral-limiter/ral/cmd/rald/internal/resp"
	"github.com/ral-limiter/ral/policy"
)

func state(allowed bool, limit, remaining, wait, retry, reset int64) map[string]any {
	return map[string]any{
		"allowed": allowed, "limit": limit, "remaining": remaining,
		"wait": wait, "retry_after": retry, "reset_after": reset,
	}
}

func TestTakeByNameAndByText(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, c *client) {
		// A map is its keys and values in turn, and a bool an integer.
		assert.Equal(t, []any{
			"allowed", int64(1), "limit", int64(5), "remaining", int64(4),
			"wait", int64(0), "retry_after", int64(0), "reset_after", int64(1000),
		}, c.do("RAL.TAKE ann api"))
		c.three()
		assert.Equal(t, state(true, 5, 1, 0, 0, 4000), c.do("RAL.TAKE ann api 3"))
		assert.Equal(t, state(false, 5, 1, 0, 1000, 4000), c.do("RAL.TAKE ann api 2"))
		assert.Equal(t, state(false, 5, 1, 0, -1, 4000), c.do("RAL.TAKE ann api 6"))
		assert.Equal(t, state(true, 5, 1, 0, 0, 4000), c.do("RAL.PEEK ann api"))
		assert.Equal(t, state(true, 5, 3, 0, 0, 2000), c.do("RAL.REFUND ann api 2"))
		assert.Equal(t, state(true, 5, 0, 0, 0, 7000), c.do("RAL.REFUND ann api -5"), "a charge may leave a debt")
		assert.Equal(t, state(false, 5, 0, 0, 3000, 7000), c.do("RAL.TAKE ann api 1"))
		assert.Equal(t, state(false, 5, 0, 0, 3000, 7000), c.do("RAL.WAIT ann api 1 0"))
		assert.Equal(t, true, c.do("RAL.RESET ann api"))
		assert.Equal(t, false, c.do("RAL.RESET ann api"))
		assert.Equal(t, state(true, 5, 5, 0, 0, 0), c.do("RAL.PEEK ann api"))

		assert.Equal(t, state(true, 5, 4, 0, 0, 1000), c.send("RAL.TAKE", "ann", "funnel 5, 1/s"), "a key of its own")
		assert.Equal(t, state(true, 2, 1, 0, 0, 60_000), c.do("RAL.TAKE ann window_2/m"))
		assert.Equal(t, state(true, 2, 0, 0, 0, 60_000), c.do("RAL.TAKE ann window_2/m"))
		time.Sleep(time.Second + 500*time.Microsecond)
		assert.Equal(t, state(false, 2, 0, 0, 59_000, 59_000), c.do("RAL.TAKE ann window_2/m"), "milliseconds are rounded up")

		assert.Equal(t, state(true, 200, 198, 0, 0, 59_000), c.do("RAL.CHANGE ann window_2/m window_200/m"), "used units count")
		assert.Equal(t, state(true, 3, 1, 0, 0, 600_000), c.do("RAL.CHANGE ann window_2/m login"), "under another key, too")
		assert.Equal(t, state(true, 2, 2, 0, 0, 59_000), c.do("RAL.PEEK ann window_2/m"), "the window stays where it opened")

		for command, want := range map[string]string{
			"RAL.CHANGE ann api other": `ERR limit is "other": the name`,
			"RAL.TAKE ann other":       `ERR limit is "other": the name of a configured limit is accepted, or the text of one: `,
			"RAL.TAKE ann":             "ERR wrong number of arguments for 'ral.take' command",
			"RAL.TAKE ann api -1":      `ERR n is "-1": 0 or more is accepted`,
			"RAL.TAKE ann api x":       `ERR n is "x": an integer of 64 bits is accepted`,
			"RAL.TAKE ann api 1 ann":   "ERR RAL.TAKE takes key limit [n]",
			"RAL.REFUND ann api 1.5":   `ERR n is "1.5": an integer`,
			"RAL.WAIT ann api 1 -1":    `ERR milliseconds is "-1": 0 to 60000 is accepted`,
			"RAL.WAIT ann api 1 60001": `ERR milliseconds is "60001": 0 to 60000 is accepted`,
		} {
			got, ok := c.do(command).(replyError)
			assert.True(t, ok && strings.HasPrefix(string(got), want), "%s: %s", command, got)
		}
	})
}

// Promise: `RAL.TAKE` takes from all its keys or none.
func TestExplainSaysWhyACallIsRefused(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, c *client) {
		c.three()
		c.do("RAL.TAKE ann login 3")
		want := state(false, 3, 0, 0, 600_000, 600_000)
		for name, value := range map[string]any{
			"used": int64(3), "of": int64(3), "blocked": int64(0), "waiting": int64(0), "shadow": false, "source": "process",
			"text": "login: At most 3 in each window of 10m, which begins with the first call. 3 of 3 used. A call is refused for 10m. In 10m 3 are left.",
		} {
			want[name] = value
		}
		assert.Equal(t, want, c.do("RAL.EXPLAIN login ann"))
		assert.Equal(t, want, c.do("RAL.EXPLAIN login ann"), "it takes nothing")

		other := c.do("RAL.EXPLAIN window_3/10m ann").(map[string]any)
		assert.Equal(t, []any{true, int64(0), int64(3)}, []any{other["allowed"], other["used"], other["remaining"]}, "a key of its own")
		c.do("RAL.TAKE ann window_30/10m 20")
		other = c.do("RAL.EXPLAIN window_30/10m ann").(map[string]any)
		assert.Equal(t, []any{true, int64(20), int64(30)}, []any{other["allowed"], other["used"], other["of"]}, "of the limit that comes with the call")
		assert.True(t, strings.HasPrefix(other["text"].(string), "At most 30 in each window of 10m"), "%v", other["text"])

		assert.Contains(t, c.do("RAL.EXPLAIN other ann"), `ERR limit is "other": the name`)
		assert.Equal(t, "OK", c.do("MULTI"))
		assert.Equal(t, "QUEUED", c.do("RAL.EXPLAIN login ann"))
		assert.Equal(t, []any{want}, c.do("EXEC"))
	})
}

func TestTakeFromAllOrNone(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, c *client) {
		c.three()
		assert.Equal(t, map[string]any{
			"allowed": true, "retry_after": int64(0), "binding": int64(1),
			"keys": []any{state(true, 5, 4, 0, 0, 1000), state(true, 3, 0, 0, 0, 600_000)},
		}, c.do("RAL.TAKE ann api 1 ann login 3"))
		refused := c.do("RAL.TAKE ann api 1 ann login 1 bob at_most_5/m 1").(map[string]any)
		assert.Equal(t, false, refused["allowed"])
		assert.Equal(t, int64(600_000), refused["retry_after"])
		assert.Equal(t, int64(1), refused["binding"])
		assert.Equal(t, state(true, 5, 4, 0, 0, 1000), c.do("RAL.PEEK ann api"))
		assert.Equal(t, state(true, 5, 5, 0, 0, 0), c.do("RAL.PEEK bob at_most_5/m"))

		many := append([]string{"RAL.TAKE"}, slices.Repeat([]string{"ann", "api", "1"}, maxClaims+1)...)
		assert.Equal(t, replyError("ERR RAL.TAKE takes from at most 64 keys at once"), c.send(many...))
	})
}

// warnings returns the number of warnings of the limit api.
func warnings(l *configured.Limits) uint64 {
	u := maps.Collect(l.All())["api"]
	n, _ := u.Counts()
	return n.Warnings.Load()
}

// Promise: Each command that takes units under a configured limit warns by its `warn-at`.
func TestCommandsWarn(t *testing.T) {
	for _, command := range []string{"RAL.TAKE %s api %d", "RAL.TAKE %[1]s other 1 %[1]s api %[2]d", "RAL.WAIT %s api %d 0", "RAL.WAIT %s api %d 1000", "RAL.REFUND %s api -%d"} {
		synctest.Test(t, func(t *testing.T) {
			keep, err := families.New(families.Config{})
			require.NoError(t, err)
			limits := limitsOf(t, keep, "limits:\n  api: {limit: window 10/h, warn-at: [0.8]}\n  other: window 100/h\n")
			c := connect(t, Config{Families: keep, Limits: limits})
			c.do(fmt.Sprintf(command, "ann", 7))
			c.do("RAL.TAKE ann api 4")
			c.do("RAL.TAKE ann api 1 ann other 101")
			c.do("RAL.REFUND ann api 1")
			require.Equal(t, uint64(0), warnings(limits), command)
			c.do(fmt.Sprintf(command, "ann", 2))
			require.Equal(t, uint64(1), warnings(limits), command)
			c.do(fmt.Sprintf(command, "ann", 1))
			require.Equal(t, uint64(1), warnings(limits), command)
		})
	}
}

// Claims on a key are met together, so none of them alone passes the share.
func TestClaimsOnAKeyWarnTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keep, err := families.New(families.Config{})
		require.NoError(t, err)
		limits := limitsOf(t, keep, "limits:\n  api: {limit: window 10/h, warn-at: [0.8]}\n")
		c := connect(t, Config{Families: keep, Limits: limits})
		c.do("RAL.TAKE ann api 6")
		c.do("RAL.TAKE ann api 2 bob api 2 ann api 2")
		require.Equal(t, uint64(1), warnings(limits))
	})
}

// Commands sent meanwhile are answered afterwards.
//
// Promise: A client that leaves while waiting has taken nothing.
func TestWaitingClientMayGoOrSendMore(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, c *client) {
		gone := c.three().another()
		c.do("RAL.TAKE ann api 5")
		gone.write("RAL.WAIT", "ann", "api", "5", "60000")
		synctest.Wait()
		require.NoError(t, gone.conn.Close())
		c.clients(1, "a client that went is waited for")
		time.Sleep(time.Second)
		assert.Equal(t, int64(1), c.do("RAL.PEEK ann api").(map[string]any)["remaining"])

		start := time.Now()
		assert.Equal(t, state(false, 5, 1, 0, 1000, 4000), c.do("RAL.WAIT ann api 2 999"), "its turn would come too late")
		assert.Zero(t, time.Since(start))
		c.write("RAL.WAIT", "ann", "api", "2", "1000")
		c.write("PING", "later")
		assert.Equal(t, state(true, 5, 0, 1000, 0, 5000), c.reply())
		assert.Equal(t, time.Second, time.Since(start))
		assert.Equal(t, "later", c.reply())
	})
}

// Its end cannot be seen with a full buffer. It waits no longer than the grace.
func TestWaitingClientThatSendsTooMuchTakesNoTurn(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, c *client) {
		much := c.three().another()
		c.do("RAL.TAKE ann api 5")
		much.flood("RAL.WAIT ann api 5 60000\r\n"+strings.Repeat("PING\r\n", 14_000), 1)
		start := time.Now()
		assert.Contains(t, much.reply(), "the client sent more than is kept while it waits, so its connection ends")
		assert.Equal(t, io.EOF, much.reply())
		c.clients(1)
		assert.Equal(t, fullGrace, time.Since(start))
		time.Sleep(10 * time.Second)
		assert.Equal(t, int64(5), c.do("RAL.PEEK ann api").(map[string]any)["remaining"], "it took its turn")
	})
}

// Within the grace, although the buffer is full.
func TestTurnThatComesSoonIsTaken(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, c *client) {
		c.three().do("RAL.TAKE ann funnel_1,_2/s")
		c.flood("RAL.WAIT ann funnel_1,_2/s 1 60000\r\n"+strings.Repeat("PING\r\n", 14_000), 1)
		got := c.reply().(map[string]any)
		assert.Equal(t, true, got["allowed"])
		assert.Equal(t, int64(500), got["wait"])
		assert.Equal(t, "PONG", c.reply())
	})
}

// Promise: `EXISTS`, `TTL`, `PTTL`, `TYPE` and `SCAN` know a key until it owes nothing.
func TestKeysExistWhileTheyOwe(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, c *client) {
		c.do("RAL.TAKE ann funnel_10,_10/m 2")
		c.do("RAL.TAKE ann window_10/h")
		c.do("RAL.TAKE bob funnel_10,_10/m 1")
		c.do("RAL.TAKE api api 1")
		ask := func() []any {
			return c.all("EXISTS ann bob ann eve", "TTL ann", "TTL bob", "PTTL bob", "TYPE bob", "TTL eve", "TYPE eve", "SCAN 0 MATCH bob TYPE STRING", "EXISTS api")
		}
		found := func(keys ...any) []any { return []any{"0", append([]any{}, keys...)} }
		assert.Equal(t, []any{int64(3), int64(3600), int64(6), int64(6000), "string", int64(-2), "none", found("bob"), int64(0)}, ask())
		time.Sleep(5500 * time.Millisecond)
		assert.Equal(t, []any{int64(3), int64(3595), int64(1), int64(500), "string", int64(-2), "none", found("bob"), int64(0)}, ask())
		time.Sleep(500 * time.Millisecond)
		assert.Equal(t, []any{int64(2), int64(3594), int64(-2), int64(-2), "none", int64(-2), "none", found(), int64(0)}, ask())
		assert.Equal(t, found("ann", "ann"), c.do("SCAN 0 TYPE string"))
		assert.Equal(t, found(), c.do("SCAN 0 TYPE hash"))
		assert.Equal(t, int64(1), c.do("DEL ann"))
		assert.Equal(t, []any{int64(0), int64(-2), int64(-2), int64(-2), "none", int64(-2), "none", found(), int64(0)}, ask())
	})
}

// page is an answer to SCAN.
type page struct {
	next string
	keys []string
}

func (c *client) scan(cursor string, more ...string) (p page) {
	c.t.Helper()
	reply, ok := c.send(append([]string{"SCAN", cursor}, more...)...).([]any)
	require.True(c.t, ok, "SCAN %s %s", cursor, more)
	for _, key := range reply[1].([]any) {
		p.keys = append(p.keys, key.(string))
	}
	return page{reply[0].(string), p.keys}
}

// fill uses n keys, key0 and so on.
func (c *client) fill(n int) {
	for i := range n {
		c.do(fmt.Sprintf("CL.THROTTLE key%d 4 1 1", i))
	}
}

// After a lost reply a page comes again, also the last. The page before it is not kept. Any of a
// pool's connections may ask.
func TestScanGoesThroughAllKeys(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, c *client) {
		c.fill(20)
		for i := range 20 {
			c.send("RAL.TAKE", fmt.Sprint("key", 20+i), "sliding 10/m")
		}
		for _, key := range []string{"", "\x00zero", "a/b"} {
			c.send("CL.THROTTLE", key, "4", "1", "1")
		}
		c.do("RAL.TAKE hidden api")
		var got []string
		other, before := c.another(), ""
		for cursor := "0"; len(got) == 0 || cursor != "0"; {
			p := c.scan(cursor, "COUNT", "7")
			if cursor != "0" {
				assert.Equal(t, p, other.scan(cursor, "COUNT", "7"), "again")
				assert.Equal(t, page{p.next, nil}, c.scan(cursor, "MATCH", "none"))
				assert.Equal(t, p, c.scan(cursor, "COUNT", "7"), "again, after a pattern")
			}
			if before != "" {
				assert.IsType(t, replyError(""), c.do("SCAN "+before))
			}
			got, before, cursor = append(got, p.keys...), strings.TrimPrefix(cursor, "0"), p.next
		}
		assert.Len(t, got, 43)
		slices.Sort(got)
		assert.Len(t, slices.Compact(got), 43)
		assert.Subset(t, got, []string{"", "\x00zero", "a/b", "key0", "key39"})
		assert.Equal(t, int64(44), c.do("DBSIZE"))

		for match, n := range map[string]int{"*": 43, "key1*": 11, "a*b": 1} {
			assert.Len(t, c.scan("0", "COUNT", "1000", "MATCH", match).keys, n, match)
		}
		assert.Equal(t, int64(2), c.do("DEL key1 key2 key3000"))
		assert.Equal(t, int64(42), c.do("DBSIZE"), "as SCAN and EXISTS")
		assert.Equal(t, int64(0), c.do("DEL key1"))
		for _, bad := range []string{"SCAN x", "SCAN -1", "SCAN 999", "SCAN 0 COUNT 0", "SCAN 0 COUNT", "SCAN 0 MATCH [", "SCAN 0 OTHER 1"} {
			assert.IsType(t, replyError(""), c.do(bad), bad)
		}
	})
}

// In keys, and in their bytes.
func TestPagesOfScansAreBounded(t *testing.T) {
	for _, test := range []struct {
		of, page int
		key      string
	}{{maxScanned + 1, maxScanned, "%d"}, {100, maxPage/(4000+16) + 1, "%04000d"}} {
		inBubble(t, Config{}, func(t *testing.T, c *client) {
			limit := policy.Must(policy.Parse("funnel 5, 1/h"))
			family, err := c.server.config.Families.Of(limit)
			require.NoError(t, err)
			for i := range test.of {
				families.EngineOf(family).TakeWith(limit, fmt.Sprintf(test.key, i), 1)
			}
			p := c.scan("0", "COUNT", "9000000000000000000")
			assert.Len(t, p.keys, test.page)
			assert.NotEqual(t, "0", p.next)
			assert.Len(t, c.server.scans.all, 1)
		})
	}
}

// Scans that nothing continues are bounded. Cursors cannot be guessed.
func TestScansAreBounded(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, c *client) {
		c.fill(10)
		// Cursors are not counted up.
		seen := map[string]bool{"1": true, "2": true}
		begin := func() string {
			cursor := c.scan("0", "COUNT", "1").next
			assert.False(t, seen[cursor])
			seen[cursor] = true
			n, err := strconv.ParseInt(cursor, 10, 64)
			assert.True(t, err == nil && 0 < n && n <= 1<<53, cursor)
			return cursor
		}
		first, second := begin(), begin()
		for range maxScans - 1 {
			begin()
		}
		assert.Len(t, c.server.scans.all, maxScans)
		assert.IsType(t, replyError(""), c.do("SCAN "+first), "the oldest goes")
		c.scan(second, "COUNT", "1")
		time.Sleep(scanIdle + time.Second)
		c.fill(2)
		begin()
		assert.Len(t, c.server.scans.all, 1)
	})
}

func TestGreetingsAreAnsweredAsByRedis(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, c *client) {
		two := c.do("HELLO").([]any)
		assert.Equal(t, []any{"server", "rald", "version", version, "proto", int64(2)}, two[:6])
		three := c.do("HELLO 3 AUTH default secret SETNAME me").(map[string]any)
		assert.Equal(t, int64(3), three["proto"])
		assert.Equal(t, "me", c.do("CLIENT GETNAME"))
		assert.Equal(t, "RESET", c.do("RESET"))
		assert.Nil(t, c.do("CLIENT GETNAME"))
		for command, want := range map[string]any{
			"PING": "PONG", "ping hi": "hi", "ECHO x": "x", "SELECT 0": "OK", "CLIENT SETNAME a": "OK",
			"CLIENT SETINFO lib-name x": "OK", "CLIENT NO-EVICT on": "OK",
			"CLIENT TRACKING ON OPTIN": "OK", "client tracking on noloop optin": "OK", "CLIENT TRACKING OFF": "OK", "COMMAND DOCS": []any{},
			"CONFIG GET save": []any{}, "COMMAND COUNT": int64(len(commands)),
			"HELLO 4":   replyError("NOPROTO unsupported protocol version: 2 and 3 are accepted"),
			"HELLO 3 X": replyError(`ERR Syntax error in HELLO option "X"`),
			"SELECT 1":  replyError("ERR DB index is out of range: rald has database 0 alone"),
			"AUTH x":    replyError("ERR AUTH was called, and the server has no password"),
		} {
			assert.Equal(t, want, c.do(command), command)
		}
		for _, bad := range []string{
			"CLIENT TRACKING", "CLIENT TRACKING ON", "CLIENT TRACKING ON BCAST", "CLIENT TRACKING OPTIN", "CLIENT TRACKING ON OPTIN X",
			"CLIENT CACHING YES", "CLIENT LIST", "CONFIG SET a b", "COMMAND X", "FLUSHALL", "GET x", "EVAL return 1",
		} {
			assert.IsType(t, replyError(""), c.do(bad), bad)
		}
		for _, name := range []string{"a b", "a\nb", "\x7f", "é"} {
			assert.IsType(t, replyError(""), c.send("CLIENT", "SETNAME", name), "%q", name)
			assert.IsType(t, replyError(""), c.send("HELLO", "3", "SETNAME", name), "%q", name)
			assert.Equal(t, "a", c.do("CLIENT GETNAME"))
		}
		assert.Len(t, c.do("COMMAND"), len(commands))
		assert.Len(t, c.do("COMMAND LIST"), len(commands))
		info := c.do("COMMAND INFO cl.throttle none").([]any)
		assert.Equal(t, []any{"cl.throttle", int64(-1), []any{"write", "fast"}, int64(1), int64(1), int64(1)}, info[0])
		assert.Nil(t, info[1])
		c.do("CL.THROTTLE k 4 1 1")
		text := c.do("INFO").(string)
		assert.Contains(t, text, "redis_version:"+version+"\r\n")
		assert.Contains(t, text, "connected_clients:1\r\n")
		assert.Contains(t, text, "\r\n\r\n# Replication\r\nrole:master\r\n")
		assert.Contains(t, text, "funnel_1,_1/s:keys=1,admitted=1,refused=0,evicted=0,forgiven=0\r\n")
		assert.Equal(t, "OK", c.do("QUIT"))
		assert.Equal(t, io.EOF, c.reply())
	})
}

// Promise: Without the password only greetings are answered.
func TestOnlyGreetingsNeedNoPassword(t *testing.T) {
	inBubble(t, Config{Password: "secret"}, func(t *testing.T, c *client) {
		const none, wrong = replyError("NOAUTH Authentication required."), replyError("WRONGPASS invalid username-password pair")
		for _, command := range []string{"PING", "CL.THROTTLE k 4 1 1", "RAL.TAKE k at_most_1/m", "INFO", "SCAN 0", "NONE", "MULTI"} {
			assert.Equal(t, none, c.do(command), command)
		}
		assert.Contains(t, c.do("HELLO 3"), "NOAUTH")
		assert.Equal(t, wrong, c.do("AUTH other"))
		assert.Equal(t, wrong, c.do("AUTH root secret"))
		assert.Equal(t, none, c.do("PING"))
		assert.Equal(t, "OK", c.do("AUTH secret"))
		assert.Equal(t, "PONG", c.do("PING"))
		assert.Equal(t, "RESET", c.do("RESET"))
		assert.Equal(t, none, c.do("PING"))
		assert.IsType(t, map[string]any{}, c.do("HELLO 3 AUTH default secret"))
		assert.Equal(t, "PONG", c.do("PING"))
		assert.Equal(t, wrong, c.do("HELLO 3 AUTH default other"))
		assert.Equal(t, "PONG", c.do("PING"))

		big := c.another()
		assert.Contains(t, big.send("AUTH", strings.Repeat("x", greeting.Argument+1)), "Protocol error: invalid bulk length")
		long := c.another()
		argument := fmt.Sprintf("$%d\r\n%s\r\n", greeting.Argument, strings.Repeat("x", greeting.Argument))
		stream := "*16\r\n" + strings.Repeat(argument, 16)
		start := time.Now()
		long.flood(stream[:greeting.Command+1], 1)
		assert.Equal(t, replyError("ERR Protocol error: the command is too long: at most 4096 bytes are accepted"), long.reply())
		assert.Zero(t, time.Since(start), "half a command is waited for")
		c.clients(1)
	})
}

// Every kind of answer of redis-cell's vectors, over a connection: package policy tries all.
//
// Promise: `CL.THROTTLE` answers as redis-cell does.
func TestConformsToRedisCell(t *testing.T) {
	for _, rounding := range []Rounding{RoundTrue, RoundRedisCell} {
		inBubble(t, Config{Rounding: rounding}, func(t *testing.T, c *client) {
			start := time.Now()
			for _, s := range []struct {
				at      time.Duration
				command string
				reply   []any
			}{
				{0, "CL.THROTTLE key 4 1 1 6", ints(1, 5, 5, -1, 0)},
				{0, "CL.THROTTLE key 4 1 1", ints(0, 5, 4, -1, 1)},
				{0, "CL.THROTTLE key 4 1 1 4", ints(0, 5, 0, -1, 5)},
				{0, "cl.throttle key 4 1 1 1", ints(1, 5, 0, 1, 5)},
				{3000 * time.Millisecond, "CL.THROTTLE key 4 1 1 1", ints(0, 5, 2, -1, 3)},
				{3100 * time.Millisecond, "CL.THROTTLE key 4 1 1 0", ints(0, 5, 2, -1, 3)},
				{3100 * time.Millisecond, "CL.THROTTLE key 4 1 1 5", ints(1, 5, 2, 3, 3)},
				{3100 * time.Millisecond, "CL.THROTTLE other 2 7 60 1", ints(0, 3, 2, -1, 9)},
				{3100 * time.Millisecond, "CL.THROTTLE another 0 1000 1", ints(0, 1, 0, -1, 1)},
				{4000 * time.Millisecond, "CL.THROTTLE shared 9 1 1 10", ints(0, 10, 0, -1, 10)},
				// The key has another limit.
				{4000 * time.Millisecond, "CL.THROTTLE shared 4 1 1", ints(1, 5, 0, 6, 10)},
				{6000 * time.Millisecond, "CL.THROTTLE shared 4 1 1 0", ints(1, 5, 0, 3, 8)},
			} {
				time.Sleep(time.Until(start.Add(s.at)))
				assert.Equal(t, s.reply, c.do(s.command), "%s at %v, rounding %d", s.command, s.at, rounding)
			}
		})
	}
}

func TestTimesAreRoundedAsConfigured(t *testing.T) {
	for _, c := range []struct {
		of                     time.Duration
		exact, cell, dragonfly int64
	}{
		{0, 0, 0, 0},
		{1, 1, 0, 0},
		{time.Millisecond - 1, 1, 0, 0},
		{time.Millisecond, 1, 1, 1},
		{time.Second, 1, 1, 2},
		// The nanosecond is the limit's own rounding.
		{time.Second + 1, 1, 1, 2},
		{time.Second + time.Millisecond, 2, 2, 2},
		{1<<63 - 1, 9223372037, 9223372037, 9223372037},
	} {
		d := policy.Decision{ResetAfter: c.of, RetryAfter: c.of}
		for rounding, want := range map[Rounding]int64{RoundTrue: c.exact, RoundRedisCell: c.cell, RoundDragonfly: c.dragonfly} {
			assert.Equal(t, want, rounding.reply(d)[4], "%v, %d", c.of, rounding)
			// Otherwise the figure is package policy's.
			if rounding != RoundTrue && c.of < time.Hour {
				assert.Equal(t, want, rounding.reply(d)[3], "%v, %d", c.of, rounding)
			}
		}
	}
}

// Promise: `CL.THROTTLE` refuses numbers by which redis-cell wraps around or divides by 0.
func TestThrottleRefusesBadNumbers(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, c *client) {
		const usage = "Cell error: Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]"
		for command, want := range map[string]string{
			"CL.THROTTLE":                  usage,
			"CL.THROTTLE k 1 1":            usage,
			"CL.THROTTLE k 1 1 1 1 1":      usage,
			"CL.THROTTLE k x 1 1":          "Cell error: Couldn't parse as integer: x",
			"CL.THROTTLE k 1 1.5 1":        "Cell error: Couldn't parse as integer: 1.5",
			"CL.THROTTLE k 1 1 1 1_0":      "Cell error: Couldn't parse as integer: 1_0",
			"CL.THROTTLE k -1 1 1":         "Cell error: max_burst is -1: 0 to 9223372036854775806 is accepted",
			"CL.THROTTLE k 1 0 1":          "Cell error: count is 0: 1 or more is accepted",
			"CL.THROTTLE k 1 1 0":          "Cell error: period is 0: 1 to 9223372036 seconds are accepted",
			"CL.THROTTLE k 1 1 1 -1":       "Cell error: quantity is -1: 0 or more is accepted",
			"CL.THROTTLE k 1 1 9223372037": "Cell error: period is 9223372037: 1 to 9223372036 seconds are accepted",
		} {
			assert.Equal(t, replyError(want), c.do(command), command)
		}
		for _, command := range []string{
			"CL.THROTTLE k 9223372036854775807 1 1",
			"CL.THROTTLE k 9223372036854775806 1 1",
			"CL.THROTTLE k 1000000 1 9223372036",
			"CL.THROTTLE k 99999999999999999999 1 1",
			"CL.THROTTLE k 1 9223372036854775807 1",
		} {
			assert.IsType(t, replyError(""), c.do(command), command)
		}
		assert.Equal(t, ints(0, 2, 1, -1, 1), c.do("CL.THROTTLE k +1 01 1"), "nothing was taken before")
	})
}

// all sends all commands before it reads an answer, as drivers do.
func (c *client) all(commands ...string) (replies []any) {
	go func() { _, _ = io.WriteString(c.conn, strings.Join(commands, "\r\n")+"\r\n") }()
	for range commands {
		replies = append(replies, c.reply())
	}
	return replies
}

// Promise: `EXEC` executes the commands since `MULTI` in order, or none if one cannot be executed.
func TestExecRunsAllCommandsOrNone(t *testing.T) {
	c := connect(t, Config{})
	const aborted = replyError("EXECABORT Transaction discarded because of previous errors.")
	throttled := func(remaining, reset int64) []any { return []any{int64(0), int64(5), remaining, int64(-1), reset} }

	assert.Equal(t, []any{"OK", "QUEUED", "QUEUED", []any{throttled(4, 15), throttled(3, 30)}},
		c.all("MULTI", "CL.THROTTLE ann 4 4 60", "CL.THROTTLE ann 4 4 60", "EXEC"), "redis-py's pipeline")
	for _, refused := range []string{"RAL.TAKE ann", "SET a b", "RAL.WAIT ann api 1 60000", "HELLO 3", "AUTH x"} {
		replies := c.all("multi", "CL.THROTTLE ann 4 4 60", refused, "CL.THROTTLE ann 4 4 60", "exec")
		assert.Equal(t, []any{"OK", "QUEUED", "QUEUED", aborted}, slices.Delete(slices.Clone(replies), 2, 3), refused)
		assert.Contains(t, replies[2], "ERR ", refused)
	}
	assert.Equal(t, throttled(2, 45), c.do("CL.THROTTLE ann 4 4 60"), "none was executed")
	replies := c.all("MULTI", "RAL.TAKE ann nonsense", "PING", "EXEC")
	executed := replies[3].([]any)
	assert.Contains(t, executed[0], "ERR ", "a command that fails ends no transaction")
	assert.Equal(t, "PONG", executed[1])

	assert.Equal(t, "OK", c.do("MULTI"))
	assert.Equal(t, "PONG", c.another().do("PING"), "it belongs to its connection")
	assert.Equal(t, "OK", c.do("DISCARD"))

	nested := replyError("ERR MULTI calls can not be nested")
	assert.Equal(t, []any{"OK", nested, "QUEUED", []any{"PONG"}}, c.all("MULTI", "MULTI", "PING", "EXEC"))
	assert.Equal(t, []any{"OK", []any{}}, c.all("MULTI", "EXEC"))
	without := replyError("ERR EXEC without MULTI")
	assert.Equal(t, []any{"OK", "QUEUED", "OK", without}, c.all("MULTI", "RAL.TAKE ann api", "DISCARD", "EXEC"))
	assert.Equal(t, []any{"OK", "QUEUED", "RESET", without}, c.all("MULTI", "RAL.TAKE ann api", "RESET", "EXEC"))
	assert.Equal(t, replyError("ERR DISCARD without MULTI"), c.do("DISCARD"))
	assert.Contains(t, c.do("WATCH ann"), "ERR rald watches no keys")
	assert.Equal(t, "OK", c.do("UNWATCH"))
	assert.Equal(t, []any{"OK", "QUEUED", "OK", io.EOF}, append(c.all("MULTI", "RAL.TAKE ann api", "QUIT"), c.reply()))
}

// Promise: No client caches a transaction's replies: after `CLIENT CACHING` it executes nothing.
func TestRepliesAreNotCached(t *testing.T) {
	c := connect(t, Config{})
	replies := c.all("CLIENT CACHING YES", "MULTI", "PTTL ann", "RAL.PEEK ann api", "EXEC")
	assert.Contains(t, replies[0], "ERR no reply may be cached by clients")
	assert.Contains(t, replies[4], "EXECABORT ")
	assert.Equal(t, []any{"OK", "QUEUED", []any{"PONG"}}, c.all("MULTI", "PING", "EXEC"))
	c.do("CLIENT CACHING YES")
	assert.Equal(t, []any{"PONG", "OK", "QUEUED", []any{"PONG"}}, c.all("PING", "MULTI", "PING", "EXEC"), "it is for the next command")
}

// In commands, in bytes, and in arguments: empty arguments have no bytes, and without this bound a
// transaction of 64 KiB took 25 MB.
func TestTransactionsAreBounded(t *testing.T) {
	c := connect(t, Config{Command: resp.Limits{Arguments: 16, Argument: 100, Command: 200}})
	long := "ECHO " + strings.Repeat("x", 90)
	for _, many := range [][]string{slices.Repeat([]string{"PING"}, 17), {long, long, long}, slices.Repeat([]string{"EXISTS" + strings.Repeat(" k", 15)}, 9)} {
		replies := c.all(slices.Concat([]string{"MULTI"}, many, []string{"EXEC"})...)
		last := len(many)
		for i, reply := range replies[1:last] {
			assert.Equal(t, "QUEUED", reply, "%s: %d", many[0], i)
		}
		assert.Contains(t, replies[last], "ERR a transaction has at most 16 commands and 200 bytes, in 128 arguments", many[0])
		assert.Contains(t, replies[last+1], "EXECABORT")
	}
	assert.Equal(t, []any{"OK", "QUEUED", []any{long[5:]}}, c.all("MULTI", long, "EXEC"), "the next begins anew, and keeps its arguments")
	for _, count := range c.server.Stats().Commands {
		if count.Name == "echo" {
			assert.Equal(t, CommandStats{"echo", 1, 1}, count, "a command counts when it is executed")
		}
	}
}

// Each key is found again by its text.
//
// Promise: Keys of clients' own limits and configured limits never collide.
func TestKeyIsFoundByItsText(t *testing.T) {
	texts := map[string]string{}
	for key, want := range map[string]string{
		stored([]byte("ann")):                      "ann",
		stored([]byte("two words")):                "two words",
		configured.Prefix("login") + "ann":         `login "ann"`,
		configured.Prefix("login"):                 `login ""`,
		stored([]byte(`login "ann"`)):              `"login \"ann\""`,
		stored([]byte(" ann")):                     `" ann"`,
		stored([]byte("")):                         `""`,
		stored([]byte(mark + "x")):                 `"\x00x"`,
		stored([]byte(configured.Prefix("x"))):     `"\x00x\x00"`,
		configured.Prefix("login") + mark + "\xff": `login "\x00\xff"`,
		stored([]byte(`a\b`)):                      `"a\\b"`,
		stored([]byte("日本")):                       "日本",
	} {
		text := KeyText(key)
		assert.Equal(t, want, text)
		assert.Empty(t, texts[text])
		texts[text] = key
		back, err := ParseKey(text)
		require.NoError(t, err, text)
		assert.Equal(t, key, back, text)
	}
	for _, bad := range []string{`login"ann"`, `login "ann`, `a "b" c`, `"`, "\x00 \"a\""} {
		_, err := ParseKey(bad)
		assert.Error(t, err, bad)
	}
	back, err := ParseKey(`a\b`)
	require.NoError(t, err)
	assert.Equal(t, `a\b`, back, "what an operator types")
}
