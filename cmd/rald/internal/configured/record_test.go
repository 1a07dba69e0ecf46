package configured

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/ral-limiter/ral/cmd/rald/families"
	"github.com/ral-limiter/ral/cmd/rald/internal/limitfile"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The limits changed while the program did not run.
//
// Promise: A restart with changed figures forgets nothing.
func TestRestartWithOtherLimits(t *testing.T) {
	dir := t.TempDir()
	for i, c := range []struct {
		limit string
		left  int64 // before 3 more are taken
	}{{"funnel 100, 1/d", 100}, {"funnel 1000, 1000/365d", 997}, {"funnel 50, 1/d", 44}, {"funnel 60, 1/d", 51}} {
		o := open(t, dir)
		o.set(c.limit)
		require.Equal(t, c.left, o.remaining("k"), "%d: %s", i, c.limit)
		require.True(t, o.take("k", 3).Allowed)
		o.close()
	}
	// Keys of a removed limit are kept, too.
	o := open(t, dir)
	require.NoError(t, o.Set(&limitfile.File{}, nil))
	o.close()
	o = open(t, dir)
	o.set("funnel 40, 1/d")
	assert.EqualValues(t, 40-12, o.remaining("k"))
}

// The record forgets limits that have no engine, too.
func TestRemovedLimitsAreForgottenWithTheirDebts(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, FileName), []byte(`{"old": {"limit": "sliding 10/365d"}}`), 0o600))
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
	assert.NotContains(t, remembered(), `"old"`)
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

// If unreadable the start fails, if unwritable a change.
func TestRecordThatCannotBeUsed(t *testing.T) {
	dir := t.TempDir()
	record := filepath.Join(dir, FileName)
	o := openIn(t, families.Config{}, filepath.Join(dir, "none", FileName))
	for _, text := range []string{"{", `{"api": {"limit": "x"}}`} {
		require.NoError(t, os.WriteFile(record, []byte(text), 0o600))
		_, err := New(Config{Families: o.keep, File: record})
		assert.ErrorContains(t, err, record, text)
		assert.ErrorContains(t, err, "move the file away to begin with", text)
	}
	assert.ErrorContains(t, o.Set(file("funnel 1, 1/s"), nil), "cannot be written down")
	assert.Empty(t, o.All())
}

// BenchmarkChange reports the time for each key of a changed limit.
func BenchmarkChange(b *testing.B) {
	o := open(b, "")
	o.set("funnel 10, 1/d")
	const n = 500_000
	for i := range n {
		o.take(strconv.Itoa(i), 5)
	}
	b.ResetTimer()
	for i := range b.N {
		o.set([]string{"funnel 20, 1/d", "funnel 10, 1/d"}[i%2])
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/key")
}
