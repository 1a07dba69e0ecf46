package bench

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRalByItsClocks(t *testing.T) {
	setup := Setup{Limit: Limit{Capacity: 1, Count: 1, Per: time.Hour}, MaxKeys: 10}
	clock := func(c Contender) string {
		l, err := c.New(setup)
		require.NoError(t, err)
		defer l.Close()
		assert.Equal(t, 1, l.ChokeAll([]string{"a", "a"}), c.Name)
		return l.(ral).Stats().Clock
	}
	assert.Equal(t, "package time", clock(RalPackageTime()))
	if ReadsCounter() {
		assert.Equal(t, "counter", clock(Ral()))
	} else {
		assert.Equal(t, "package time", clock(Ral()))
	}
}
