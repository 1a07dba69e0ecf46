package redisserver

import (
	"io"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
)

func TestStats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := door(t, Config{Clients: 3})
		c := dial(t, l)
		c.do("CL.THROTTLE k 4 1 10")
		c.do("cl.throttle k 4 1 10 9") // a refusal is no error
		c.do("CL.THROTTLE k 4 1 no")
		c.do("RAL.TAKE k")
		c.do("FLUSHALL")
		c.do("nothing such")
		garbage := dial(t, l)
		go func() { _, _ = io.WriteString(garbage.conn, "*x\r\n") }()
		assert.IsType(t, replyError(""), garbage.reply())
		assert.Equal(t, io.EOF, garbage.reply())
		synctest.Wait()
		dial(t, l)
		dial(t, l)
		dial(t, l)
		synctest.Wait()

		got := s.Stats()
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
