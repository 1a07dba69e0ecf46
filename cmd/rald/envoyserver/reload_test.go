package envoyserver

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/cmd/rald/families"
	"github.com/ral-limiter/ral/cmd/rald/rules"
)

// sliding is a file of n rules of different families.
func sliding(from, n int) string {
	text := "domain: d\ndescriptors:\n"
	for i := range n {
		text += fmt.Sprintf("  - {key: k%d, rate_limit: {limit: sliding 5/%dh}}\n", i, from+i)
	}
	return text
}

func (d door) engines() (n int) {
	for range d.keep.All() {
		n++
	}
	return n
}

// Nor do refused rules take any.
func TestReplacedRulesLeaveTheirRoom(t *testing.T) {
	d := open(t, sliding(1, 1))
	units := d.engines() - 1
	d.write(sliding(1, 40))
	err := d.reload()
	require.ErrorIs(t, err, families.ErrTooMany)
	line := 3 + 32 - units
	assert.ErrorContains(t, err, fmt.Sprintf(":%d: d.k%d: no room", line, 32-units))
	assert.NotContains(t, err.Error(), fmt.Sprintf(":%d: ", line-1))
	set, other := rules.Read(filepath.Dir(d.file), rules.Options{})
	require.NoError(t, other)
	assert.EqualError(t, Room(families.Config{}, set), err.Error())
	assert.Equal(t, units+1, d.engines())
	for from := range 40 {
		d.write(sliding(from+1, 2))
		require.NoError(t, d.reload())
		assert.Equal(t, units+2, d.engines())
	}
}

func TestRequestsFindNoReleasedEngine(t *testing.T) {
	d := open(t, sliding(1, 1))
	stop := make(chan struct{})
	var callers sync.WaitGroup
	for caller := range 4 {
		callers.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				code, _ := d.ask(entries(fmt.Sprintf("k0=%d-%d", caller, i)))
				assert.Equal(t, ok, code)
			}
		})
	}
	for from := range 10 {
		d.write(sliding(from%2+1, 1))
		assert.NoError(t, d.reload())
	}
	close(stop)
	callers.Wait()
}
