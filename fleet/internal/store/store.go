package store

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/ral-limiter/ral/internal/core/penalty"
)

// DefaultEpoch is what a store counts time from if it is not told.
var DefaultEpoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Options are what a store may be told in addition to its client. All stores that share
// keys must be told the same.
type Options struct {
	// Name is that of the limit, and part of its keys' names. It must not contain
	// braces, which would move the keys of a cluster elsewhere.
	Name string
	// Tag is the hash tag of all keys, so that a cluster keeps them together; without
	// it each key is its own. It must not contain braces either.
	Tag string
	// Epoch is what time is counted from, to the second: DefaultEpoch if it is zero.
	Epoch time.Time
	// Clock, in microseconds since the epoch, is read in place of Redis's. It is for
	// tests. As it need not go on as Redis's does, keys are then kept an hour longer.
	Clock func() int64
	// Penalty is the rule by which refusals block a key. The zero one counts none.
	Penalty penalty.Rule
}

// Store has Redis decide. Any number of goroutines may use it at once.
type Store struct {
	client  rueidis.Client
	options Options
	rule    rule
	blocks  string      // the prefix of the names of blocks
	apart   atomic.Bool // Redis refused a script about several keys
	scripts struct {
		read, look, soon, all, relog, lock, heartbeat *script
	}
}

// New returns a store that asks Redis through the client. It does not ask anything yet.
func New(client rueidis.Client, o Options) *Store {
	if o.Epoch.IsZero() {
		o.Epoch = DefaultEpoch
	}
	s := &Store{client: client, options: o, rule: newRule(o.Penalty)}
	s.blocks = s.prefix("block")
	s.scripts.read = s.newScript("local key = KEYS[1]\n", timeLua, readLua,
		"return {w, us, h < 0 and -1 or 0}\n")
	s.scripts.look = s.newScript("local key = KEYS[1]\n", timeLua, readLua,
		"return {w, us, h < 0 and -1 or 0, redis.call('GET', KEYS[2])}\n")
	s.scripts.lock = s.newScript("local key = KEYS[1]\n", timeLua, s.rule.local(),
		strings.Replace(lockLua, "BLOCK", blockLua, 1))
	s.scripts.soon = s.newScript("local key = KEYS[1]\n", timeLua,
		"if us > ARGV[4] + 0 then return -1 end\n", swapLua)
	s.scripts.all = s.allScript()
	s.scripts.relog = s.relogScript()
	s.scripts.heartbeat = s.newScriptFrom(0, "local key = KEYS[1]\n", timeLua, heartbeatLua)
	return s
}

// clocked returns what puts the clock into a script that counts from epoch, in seconds of
// Unix time.
func (o Options) clocked(epoch int64) *strings.Replacer {
	if o.Clock == nil {
		expiry := strconv.FormatInt(epoch, 10) + "000 + ms"
		return strings.NewReplacer(
			"EPOCH", strconv.FormatInt(epoch, 10),
			"EXPIRY", "'PXAT', "+expiry,
			"LIFE", "'PEXPIREAT', key, "+expiry)
	}
	expiry := "math.max(ms - math.floor(us / 1000), 0) + 3600000"
	return strings.NewReplacer(
		timeLua, fmt.Sprintf("local us = ARGV[#ARGV] + %d * 1e6\n", o.Epoch.Unix()-epoch),
		"EXPIRY", "'PX', "+expiry,
		"LIFE", "'PEXPIRE', key, "+expiry)
}

// run runs a script. Redis forgets scripts when it is restarted, or told to; then it
// is sent again.
func (s *Store) run(ctx context.Context, sc *script, keys, args []string) rueidis.RedisResult {
	if s.options.Clock != nil {
		args = append(args[:len(args):len(args)], s.clock())
	}
	count := int64(len(keys))
	res := s.client.Do(ctx, s.client.B().Evalsha().Sha1(sc.sha).Numkeys(count).Key(keys...).Arg(args...).Build())
	if unknown(res) {
		res = s.client.Do(ctx, s.client.B().Eval().Script(sc.source).Numkeys(count).Key(keys...).Arg(args...).Build())
	}
	return res
}

// call is a script to run.
type call struct {
	index  int
	script *script
	keys   []string
	args   []string
}

// runAll runs scripts in one round trip, and those that Redis does not know in another.
func (s *Store) runAll(ctx context.Context, calls []call) []rueidis.RedisResult {
	if len(calls) == 0 {
		return nil
	}
	args := func(c call) []string {
		if s.options.Clock != nil {
			return append(c.args[:len(c.args):len(c.args)], s.clock())
		}
		return c.args
	}
	commands := make(rueidis.Commands, len(calls))
	for i, c := range calls {
		commands[i] = s.client.B().Evalsha().Sha1(c.script.sha).Numkeys(int64(len(c.keys))).Key(c.keys...).Arg(args(c)...).Build()
	}
	results := s.client.DoMulti(ctx, commands...)
	var again []int
	commands = commands[:0]
	for i, c := range calls {
		if unknown(results[i]) {
			again = append(again, i)
			commands = append(commands, s.client.B().Eval().Script(c.script.source).Numkeys(int64(len(c.keys))).Key(c.keys...).Arg(args(c)...).Build())
		}
	}
	if len(again) > 0 {
		for i, res := range s.client.DoMulti(ctx, commands...) {
			results[again[i]] = res
		}
	}
	return results
}

// clock is what a test's clock says, for a script.
func (s *Store) clock() string { return strconv.FormatInt(s.options.Clock(), 10) }

// unknown reports whether Redis does not know the script.
func unknown(res rueidis.RedisResult) bool {
	err, ok := rueidis.IsRedisErr(res.Error())
	return ok && err.IsNoScript()
}
