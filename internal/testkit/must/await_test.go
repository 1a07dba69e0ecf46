package must

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

type recorder struct {
	testing.TB
	failed bool
}

func (*recorder) Helper() {}

func (r *recorder) Fatalf(string, ...any) {
	r.failed = true
	panic(r)
}

func TestAwaitFailsAfterAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		Await(t, func() bool { return time.Since(began) >= 3*time.Second }, "three seconds")
		assert.Equal(t, 3*time.Second, time.Since(began).Truncate(time.Second))
		r := &recorder{}
		assert.PanicsWithValue(t, r, func() { Await(r, func() bool { return false }, "never") })
		assert.True(t, r.failed)
		assert.Equal(t, 63*time.Second, time.Since(began).Truncate(time.Second))
	})
}
