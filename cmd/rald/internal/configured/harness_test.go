package configured

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/ral-limiter/ral/cmd/rald/internal/families"
	"github.com/ral-limiter/ral/cmd/rald/internal/limitfile"
	"github.com/ral-limiter/ral/policy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type opened struct {
	*Limits
	t    testing.TB
	keep *families.Families
}

// open opens the limits of a directory, or of none if dir is "".
func open(t testing.TB, dir string) *opened {
	t.Helper()
	file := ""
	if dir != "" {
		file = filepath.Join(dir, FileName)
	}
	return openIn(t, families.Config{Dir: dir, Every: time.Hour}, file)
}

// openIn opens the limits of new families, with a record in the file.
func openIn(t testing.TB, of families.Config, file string) *opened {
	t.Helper()
	keep, err := families.New(of)
	require.NoError(t, err)
	l, err := New(Config{Families: keep, File: file})
	require.NoError(t, err)
	o := &opened{l, t, keep}
	t.Cleanup(func() { o.close() })
	return o
}

func (o *opened) close() { assert.NoError(o.t, o.keep.Close()) }

// file is a file with the limit api.
func file(text string) *limitfile.File {
	f, err := limitfile.Parse("limits.yaml", []byte("limits:\n  api: "+text+"\n"))
	if err != nil {
		panic(fmt.Sprint(text, ": ", err))
	}
	return f
}

func (o *opened) set(limit string) {
	o.t.Helper()
	require.NoError(o.t, o.Set(o.t.Context(), file(limit), nil))
}

func (o *opened) take(key string, n int64) policy.Decision {
	o.t.Helper()
	call := o.Begin()
	defer call.End()
	u, ok := call.Find([]byte("api"), []byte(key))
	if !assert.True(o.t, ok, "api is not configured") {
		return policy.Decision{}
	}
	d, err := u.Family.TakeWith(context.Background(), u.Limit, u.Key, n)
	assert.NoError(o.t, err)
	return d
}

func (o *opened) remaining(key string) int64 { o.t.Helper(); return o.take(key, 0).Remaining }

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

// noted returns the keys with notes in a Ledger.
func (o *opened) noted() (all []string) {
	for family := range o.keep.All() {
		family.(families.InProcess).Ledger().Each(func(key string) { all = append(all, key) })
	}
	return all
}

func (o *opened) engines() (n int) {
	for range o.keep.All() {
		n++
	}
	return n
}
