package configdir

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	file := filepath.Join(dir, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
}

const (
	limits = "limits:\n  login: at most 5/10m\n"
	rates  = "domain: shop\ndescriptors:\n  - key: user\n    rate_limit: {unit: minute, requests_per_unit: 5}\n"
)

func TestReadTakesEachFileOfTheDirectory(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "limit.yaml", limits)
	_, err := Under(dir, "").Read()
	assert.EqualError(t, err, dir+" has neither limits.yaml nor check.yaml nor a directory envoy")

	write(t, dir, "limits.yaml", limits)
	c, err := Under(dir, "").Read()
	require.NoError(t, err)
	assert.Len(t, c.Limits.All(), 1)
	assert.Nil(t, c.Checks)
	assert.Nil(t, c.Rules)
	before := c
	write(t, dir, "check.yaml", "proxy: caddy\nrules:\n  - {match: POST /login, limit: login, key: address}\n  - {match: /, limit: 'funnel 1k, 1k/s', key: address}\n")
	write(t, dir, "envoy/shop.yaml", rates)
	d := Under(dir, "")
	assert.Equal(t, Dirs{Dir: dir, Envoy: filepath.Join(dir, "envoy")}, d)
	c, err = d.Read()
	require.NoError(t, err)
	assert.Len(t, c.Limits.All(), 2, "with one of check.yaml")
	assert.Equal(t, 2, c.Checks.Len())
	assert.Len(t, c.Rules.Rules(), 1)
	require.NoError(t, os.Remove(filepath.Join(dir, "limits.yaml")))
	write(t, dir, "check.yaml", "proxy: caddy\nrules: []\n")
	c, err = d.Read()
	require.NoError(t, err)
	assert.ErrorContains(t, c.Succeeds(before), "limits.yaml: it is gone, and had 1: a file with limits: {} is accepted")
	assert.NoError(t, c.Succeeds(c))
	write(t, dir, "limits.yaml", "limits: {}\n")
	c, err = d.Read()
	require.NoError(t, err)
	assert.NoError(t, c.Succeeds(before))
	require.NoError(t, os.Remove(filepath.Join(dir, "envoy/shop.yaml")))
	_, err = d.Read()
	assert.ErrorContains(t, err, filepath.Join(dir, "envoy")+": no file here ends with .yaml or .yml")

	assert.Equal(t, Dirs{Dir: dir, Envoy: "/elsewhere"}, Under(dir, "/elsewhere"))
	assert.Equal(t, Dirs{}, Under("", ""))
	_, err = Under(filepath.Join(dir, "none"), "").Read()
	assert.ErrorIs(t, err, os.ErrNotExist)
}

// Promise: An empty file of limits removes no limit from rald.
func TestFileOfLimitsIsAccepted(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "limits.conf", "a: window 1/h\n plan gold: window 2/h\n")
	d := Dirs{File: filepath.Join(dir, "limits.conf")}
	before, err := d.Read()
	require.NoError(t, err)
	assert.Equal(t, []string{"a", "a/plan/gold"}, []string{before.Limits.All()[0].Name, before.Limits.All()[1].Name})
	assert.Equal(t, 1, before.Limits.InFile, "a plan is a part of its limit")
	stamp := before.stamp
	write(t, dir, "limits.conf", "# a: window 1/h\n")
	c, err := d.Read()
	require.NoError(t, err)
	assert.EqualError(t, c.Succeeds(before), d.File+": it has no limits, and the file before had 1")
	assert.NotEqual(t, stamp, c.stamp)
	assert.NoError(t, c.Succeeds(c))
	write(t, dir, "limits.conf", "10/h: window 1/h\nfunnel: window 1/h\n")
	_, err = d.Read()
	assert.ErrorContains(t, err, "limits.conf:1: ")
}

// All faults have file, line and key.
//
// Promise: One directory configures all doors; any fault refuses all of it.
func TestOneFaultRefusesAll(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "limits.yaml", "limits:\n  login: 5/10m\n  api: funnel 1\n")
	write(t, dir, "envoy/shop.yaml", "domain: shop\nlimits: 1\n")
	write(t, dir, "check.yaml", "proxy: caddy\nrules:\n  - {match: /, limit: login, key: adress}\n")
	c, err := Under(dir, "").Read()
	assert.Nil(t, c)
	for _, want := range []string{
		filepath.Join(dir, "limits.yaml") + ":2: login: ", "limits.yaml:3: api: ", "shop.yaml:2: limits: ",
		"check.yaml:3: rules[0].key: ",
	} {
		assert.ErrorContains(t, err, want)
	}
	assert.NotContains(t, err.Error(), "rules[0].limit", "a limit of the other file, which has faults of its own")
	write(t, dir, "limits.yaml", limits)
	write(t, dir, "envoy/shop.yaml", rates)
	write(t, dir, "check.yaml", "proxy: caddy\nrules:\n  - {match: /, limit: other, key: address}\n")
	_, err = Under(dir, "").Read()
	assert.ErrorContains(t, err, filepath.Join(dir, "check.yaml")+":3: rules[0].limit: ")
}

// watch watches a directory in a bubble. after checks the number of reloads some seconds later.
func watch(t *testing.T, d Dirs, c *Config, now <-chan os.Signal) (after func(want int, what string)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	reloads := atomic.Int64{}
	go d.Watch(ctx, c, time.Second, now, func(*Config, error) bool { reloads.Add(1); return false })
	// No file is written at the moment of a look.
	time.Sleep(500 * time.Millisecond)
	return func(want int, what string) {
		t.Helper()
		time.Sleep(5 * time.Second)
		assert.EqualValues(t, want, reloads.Load(), what)
	}
}

// Once, also between reading and watching. A value of now reloads at any time. Unreadable entries
// hide no change of the read files, in either directory, and other files of DIR do not matter.
//
// Promise: A changed file is noticed, behind links too.
func TestChangedFileIsNoticedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		link := func(to, name string) { require.NoError(t, os.Symlink(to, filepath.Join(dir, name))) }
		write(t, dir, "envoy/shop.yaml", rates)
		d := Under(dir, "")
		c, err := d.Read()
		require.NoError(t, err)
		write(t, dir, "limits.yaml", limits)
		now := make(chan os.Signal)
		after := watch(t, d, c, now)
		after(1, "a file came before the watch")
		after(1, "nothing changed")
		write(t, dir, "limits.yaml", limits+"  more: sliding 1/s\n")
		after(2, "a file changed")
		write(t, dir, "envoy/deep/b.yaml", "domain: b\n")
		after(3, "a file came")
		require.NoError(t, os.Remove(filepath.Join(dir, "envoy/deep/b.yaml")))
		after(4, "a file went")
		write(t, dir, "README.md", "no configuration")
		write(t, dir, "other/more.yaml", "")
		link("none", "dangling.yaml")
		after(4, "files that are not read came")
		now <- os.Interrupt
		after(5, "it was asked for")
		write(t, dir, "limits.yaml", limits)
		after(6, "a file beside an unreadable file changed")
		link("none", "envoy/dangling.yaml")
		after(7, "a file of rules that cannot be read")
		write(t, dir, "envoy/shop.yaml", rates+"# more\n")
		after(8, "a file beside it")
		write(t, dir, "check.yml", "")
		after(9, "a name that is refused")
		require.NoError(t, os.RemoveAll(filepath.Join(dir, "envoy")))
		after(10, "the directory went")
	})
}

// A program writes a file in parts, with pauses shorter than a look.
//
// Promise: A configuration file is taken once it is the same at two looks, also on SIGHUP.
func TestHalfWrittenFileIsNotTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		write(t, dir, "limits.yaml", limits)
		d := Under(dir, "")
		c, err := d.Read()
		require.NoError(t, err)
		now, put := make(chan os.Signal), make(chan int, 100)
		go d.Watch(t.Context(), c, time.Second, now, func(c *Config, err error) bool {
			assert.NoError(t, err)
			put <- len(c.Limits.Limits)
			return false
		})
		time.Sleep(500 * time.Millisecond)
		text := "limits:\n"
		for i := range 20 {
			text += fmt.Sprintf("  l%d: sliding 5/10m\n", i)
			write(t, dir, "limits.yaml", text)
			now <- os.Interrupt
			time.Sleep(900 * time.Millisecond)
		}
		assert.Empty(t, put)
		time.Sleep(2 * time.Second)
		assert.Equal(t, 20, <-put)
		time.Sleep(5 * time.Second)
		assert.Empty(t, put, "one reading is enough for the signals before it")
	})
}

// Kubernetes exchanges all files by a link. Sizes and times may stay.
func TestWatchFollowsLinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		link := func(to, name string) { require.NoError(t, os.Symlink(to, filepath.Join(dir, name))) }
		for _, version := range []string{"..1", "..2"} {
			write(t, dir, version+"/shop.yaml", rates)
			require.NoError(t, os.Chtimes(filepath.Join(dir, version, "shop.yaml"), time.Time{}, time.Unix(1, 0)))
		}
		link("..1", "..data")
		link("..data/shop.yaml", "shop.yaml")
		d := Dirs{Envoy: dir}
		c, err := d.Read()
		require.NoError(t, err)
		assert.Len(t, c.Rules.Rules(), 1)
		after := watch(t, d, c, nil)
		after(0, "nothing changed")
		link("..2", "..data_tmp")
		require.NoError(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
		after(1, "the link leads elsewhere")
	})
}
