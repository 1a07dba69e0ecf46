package configured

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ral-limiter/ral/cmd/rald/families"
	"github.com/ral-limiter/ral/cmd/rald/internal/limitfile"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// manyFamilies is a file of n families, by their periods.
func manyFamilies(t *testing.T, from, n int) *limitfile.File {
	t.Helper()
	text := "limits:\n"
	for i := range n {
		text += fmt.Sprintf("  l%d: sliding 5/%ds\n", from+i, from+i)
	}
	f, err := limitfile.Parse("limits.yaml", []byte(text))
	require.NoError(t, err)
	return f
}

func (o *opened) engines() (n int) {
	for range o.keep.All() {
		n++
	}
	return n
}

// The last limits have the faults, in order. Room reports the same without engines.
func TestRefusedFileTakesNoRoom(t *testing.T) {
	o := open(t, "")
	refused := manyFamilies(t, 1, 40)
	err := o.Set(refused, nil)
	require.ErrorIs(t, err, families.ErrTooMany)
	assert.Zero(t, o.engines())
	lines := strings.Split(err.Error(), "\n")
	require.Len(t, lines, 8)
	for i, line := range lines {
		assert.Contains(t, line, fmt.Sprintf("limits.yaml:%d: limits.l%d: no room", 34+i, 33+i))
	}
	assert.EqualError(t, Room(families.Config{}, refused), err.Error())
	require.NoError(t, Room(families.Config{}, manyFamilies(t, 1, 32)))
	require.NoError(t, o.Set(manyFamilies(t, 98, 2), nil))
	require.NoError(t, o.Set(manyFamilies(t, 1, 32), nil), "the families before need no room")
	assert.Len(t, o.All(), 32)
}

// Blocked keys keep them, too.
func TestRemovedLimitsAreForgottenWithTheirDebts(t *testing.T) {
	dir := t.TempDir()
	o := open(t, dir)
	o.set("window 10/365d")
	require.True(t, o.take("k", 7).Allowed)
	for i := range 3 {
		require.NoError(t, o.Set(manyFamilies(t, i+1, 1), nil))
	}
	remembered := func() string {
		text, err := os.ReadFile(filepath.Join(dir, FileName))
		require.NoError(t, err)
		return string(text)
	}
	assert.Contains(t, remembered(), `"api"`)
	assert.NotContains(t, remembered(), `"l1"`, "no key owed under it")
	assert.Equal(t, 3, o.engines(), "that of api, and those of the last two files")
	o.set("window 10/365d")
	assert.EqualValues(t, 3, o.remaining("k"))

	require.NoError(t, o.Set(manyFamilies(t, 1, 1), nil))
	family := o.of(Prefix("api")).family
	require.True(t, family.Engine().Reset(Prefix("api")+"k"))
	require.NoError(t, o.Set(manyFamilies(t, 1, 1), nil))
	assert.NotContains(t, remembered(), `"api"`)
	assert.Equal(t, 1, o.engines())
}
