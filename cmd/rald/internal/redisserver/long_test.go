package redisserver

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/cmd/rald/internal/configured"
	"github.com/ral-limiter/ral/cmd/rald/internal/families"
)

// The commands behind it are answered.
//
// Promise: Redis clients' keys of any length are counted, up to a command of 64 KiB.
func TestKeysOfAnyLength(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, c *client) {
		length := 64<<10 - 100
		long := strings.Repeat("k", length)
		other := long[1:] + "x"
		for range 2 {
			go func() {
				c.write("CL.THROTTLE", "a", "1", "1", "60")
				c.write("CL.THROTTLE", long, "1", "1", "60")
				c.write("CL.THROTTLE", "b", "1", "1", "60")
			}()
			for range 3 {
				assert.Equal(t, int64(0), c.reply().([]any)[0])
			}
		}
		assert.Equal(t, int64(1), c.send("CL.THROTTLE", long, "1", "1", "60").([]any)[0])
		assert.Equal(t, int64(0), c.send("CL.THROTTLE", other, "1", "1", "60").([]any)[0])
		assert.Equal(t, int64(1), c.send("EXISTS", long))
		assert.Equal(t, int64(120), c.send("TTL", long))

		found := c.scan("0", "COUNT", "1000").keys
		assert.Len(t, found, 4)
		hashed := 0
		for _, key := range found {
			assert.LessOrEqual(t, len(key), maxKey)
			if strings.HasPrefix(key, mark) {
				hashed++
				assert.Equal(t, int64(1), c.send("EXISTS", key), "the hash is a key")
			}
		}
		assert.Equal(t, 2, hashed)
		assert.Equal(t, int64(1), c.send("DEL", long))
		assert.Equal(t, int64(0), c.send("EXISTS", long))

		for range 3 {
			assert.Equal(t, int64(1), c.send("RAL.TAKE", long, "login").([]any)[1])
		}
		assert.Equal(t, int64(0), c.send("RAL.TAKE", long, "login").([]any)[1], "under a configured limit")
		assert.Equal(t, "QUEUED", c.all("MULTI", "EXISTS "+long)[1])
		assert.Equal(t, []any{int64(0)}, c.do("EXEC"))
		assert.Contains(t, c.send("RAL.TAKE", "ann", long), "ERR limit is ")
		assert.Equal(t, "PONG", c.do("PING"))
		assert.Contains(t, c.send("CL.THROTTLE", strings.Repeat("k", 64<<10), "1", "1", "60"), "Protocol error: the command is too long")
	})
}

// A transaction counts a long key by its hash, as commands outside of a transaction do.
//
// Promise: A transaction of Redis clients executes 1,024 keys of any length.
func TestLongKeysInATransaction(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, c *client) {
		for length, keys := range map[int]int{maxKey: 1024, maxKey + 1: 1024, 4000: 400, 60_000: 40} {
			long := strings.Repeat("k", length-4)
			assert.Equal(t, int64(0), c.send("CL.THROTTLE", long+"0000", "0", "1", "60").([]any)[0])
			assert.Equal(t, "OK", c.do("MULTI"))
			for i := range keys {
				require.Equal(t, "QUEUED", c.send("CL.THROTTLE", fmt.Sprintf("%s%04d", long, i), "0", "1", "60"))
			}
			replies := c.do("EXEC").([]any)
			require.Len(t, replies, keys)
			for i, reply := range replies {
				assert.Equal(t, i == 0, reply.([]any)[0] == int64(1), "%d", i)
			}
		}
		const rest = 62_000
		assert.Equal(t, "OK", c.do("MULTI"))
		assert.Equal(t, "QUEUED", c.send("EXISTS", strings.Repeat("a", rest/2), strings.Repeat("b", rest/2)))
		assert.Equal(t, "QUEUED", c.send("RAL.TAKE", strings.Repeat("a", rest/2), "login", "1", strings.Repeat("b", rest/2), "login", "1"))
		assert.Equal(t, int64(0), c.do("EXEC").([]any)[0])
	})
}

// Nor does a connection, or the server, keep another long text.
func TestLongTextsAreNotKept(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, c *client) {
		long := strings.Repeat("x", maxName+1)
		assert.Contains(t, c.send("CLIENT", "SETNAME", long), "up to 4096 bytes")
		assert.Equal(t, "OK", c.send("CLIENT", "SETNAME", long[1:]))
		assert.Contains(t, c.send(long), "ERR unknown command")
		c.server.mu.Lock()
		defer c.server.mu.Unlock()
		for conn := range c.server.conns {
			assert.LessOrEqual(t, cap(conn.named), 2*maxCommandName)
		}
	})
}

func TestKeyTextOfLongKeys(t *testing.T) {
	long := strings.Repeat("k", maxKey+1)
	for _, text := range []string{long, `login "` + long + `"`, `"` + long + `"`} {
		key, err := ParseKey(text)
		require.NoError(t, err)
		assert.Less(t, len(key), 50)
		back, err := ParseKey(KeyText(key))
		require.NoError(t, err)
		assert.Equal(t, key, back)
	}
}

// Promise: A password that no client can send is refused at the start.
func TestPasswordsThatNoClientCanSend(t *testing.T) {
	keep, err := families.New(families.Config{})
	require.NoError(t, err)
	defer func() { require.NoError(t, keep.Close()) }()
	limits, err := configured.New(configured.Config{Families: keep})
	require.NoError(t, err)
	_, err = New(Config{Families: keep, Limits: limits, Password: strings.Repeat("x", MaxPassword+1)})
	assert.EqualError(t, err, "redisserver: Password has 1025 bytes: at most 1024 are accepted, as no client can send more")

	inBubble(t, Config{Password: strings.Repeat("x", MaxPassword)}, func(t *testing.T, c *client) {
		assert.Equal(t, "OK", c.send("AUTH", strings.Repeat("x", MaxPassword)))
		c = c.another()
		assert.IsType(t, map[string]any{}, c.send("HELLO", "3", "AUTH", "default", strings.Repeat("x", MaxPassword)))
	})
}
