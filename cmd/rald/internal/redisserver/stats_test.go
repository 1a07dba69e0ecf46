package redisserver

import (
	"io"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
)

func TestStats(t *testing.T) {
	inBubble(t, Config{Clients: 3}, func(t *testing.T, c *client) {
		c.do("CL.THROTTLE k 4 1 10")
		c.do("cl.throttle k 4 1 10 9") // a refusal is no error
		c.do("CL.THROTTLE k 4 1 no")
		c.do("RAL.TAKE k")
		c.do("FLUSHALL")
		c.do("nothing such")
		garbage := c.another()
		garbage.flood("*x\r\n", 1)
		assert.IsType(t, replyError(""), garbage.reply())
		assert.Equal(t, io.EOF, garbage.reply())
		synctest.Wait()
		for range 3 {
			c.another()
		}
		synctest.Wait()

		got := c.server.Stats()
		assert.Equal(t, 3, got.Clients)
		assert.EqualValues(t, 4, got.Accepted)
		assert.EqualValues(t, 1, got.Refused)
		assert.EqualValues(t, 1, got.Garbled)
		assert.Len(t, got.Commands, len(commands)+1)
		counts := map[string][2]uint64{}
		for _, c := range got.Commands {
			if c.OK+c.Errors > 0 {
				counts[c.Name] = [2]uint64{c.OK, c.Errors}
			}
		}
		assert.Equal(t, map[string][2]uint64{"cl.throttle": {2, 1}, "ral.take": {0, 1}, "unknown": {0, 2}}, counts)
		assert.EqualValues(t, 6, got.total())
	})
}
