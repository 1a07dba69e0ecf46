package checkserver

import (
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// Promise: With `once`, a request that nginx asks about twice counts once.
func TestRequestIsCountedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, "proxy: nginx\nonce: X-Id\nrules: [{match: /, limit: five, key: everybody}]\n")
		defer func() { _ = d.families.Close() }()
		ask := func(id, uri string) int { return d.asNginx(http.MethodGet, uri, "X-Id", id).Code }
		first := d.asNginx(http.MethodGet, "/a", "X-Id", "1")
		for range 10 {
			again := d.asNginx(http.MethodGet, "/a", "X-Id", "1")
			assert.Equal(t, http.StatusNoContent, again.Code)
			assert.Equal(t, first.Header(), again.Header())
		}
		for _, uri := range []string{"/b", "/a?q", "/c"} {
			assert.Equal(t, http.StatusNoContent, ask("1", uri), "another request counts: 4 units")
		}
		time.Sleep(2 * onceFor)
		assert.Equal(t, http.StatusNoContent, ask("1", "/a"), "forgotten: 5 units")
		assert.Equal(t, http.StatusForbidden, ask("1", "/b"))
		assert.Equal(t, http.StatusForbidden, ask("1", "/b"), "a refusal is not remembered")
		assert.Equal(t, http.StatusInternalServerError, ask("", "/a"))
		assert.Equal(t, Stats{Passed: 5, Refused: 2, Undecided: 1, Rules: 1}, d.Stats())
	})
}

func TestRememberedAnswersAreBounded(t *testing.T) {
	var o once
	for i := range 3 * mostOnce {
		o.add(strconv.Itoa(i), nil)
	}
	assert.LessOrEqual(t, len(o.recent)+len(o.past), mostOnce)
	_, ok := o.find(strconv.Itoa(3*mostOnce - 1))
	assert.True(t, ok)
}
