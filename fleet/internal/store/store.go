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

// DefaultEpoch is the zero of time by default.
var DefaultEpoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Options configure a store. All stores that share keys must have the same.
type Options struct {
	// Name is the limit's name, and part of its keys' names. It must not contain braces.
	Name string
	// Tag is the hash tag of all keys, without braces; "": each key is its own tag.
	Tag string
	// Epoch is the zero of time, to the second; the zero Epoch is DefaultEpoch.
	Epoch time.Time
	// Clock, in microseconds since the epoch, replaces Redis's in tests. Keys last an hour longer.
	Clock func() int64
	// Penalty is the rule by which refusals block a key. The zero rule counts none.
	Penalty penalty.Rule
}

// Store decides in Redis. Any number of goroutines may use it.
type Store struct {
	client  rueidis.Client
	options Options
	rule    rule
	blocks  string      // of the names of blocks
	apart   atomic.Bool // Redis refused a script on several keys
	scripts struct {
		read, look, soon, all, relog, lock, heartbeat *script
	}
}

// New returns a store on the client. It sends nothing yet.
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

// clocked returns the replacer of a script's clock, from epoch in seconds of Unix time.
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

// run runs a script, and sends it if Redis has forgotten it.
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

type call struct {
	index  int
	script *script
	keys   []string
	args   []string
}

// runAll runs scripts in a round trip, and unknown scripts in another.
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

func (s *Store) clock() string { return strconv.FormatInt(s.options.Clock(), 10) }

func unknown(res rueidis.RedisResult) bool {
	err, ok := rueidis.IsRedisErr(res.Error())
	return ok && err.IsNoScript()
}
