package store

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/ral-limiter/ral/internal/core/penalty"
	"github.com/ral-limiter/ral/policy"
)

// Options configure a store. All stores that share keys must have the same.
type Options struct {
	// Name is the limit's name, and part of its keys' names. It must not contain braces.
	Name string
	// Tag is the hash tag of all keys, without braces. If it is "", each key is its own hash tag.
	Tag string
	// Epoch is the instant from which policies count time, a whole second. The default is DefaultEpoch.
	Epoch time.Time
	// Clock replaces Redis's clock in tests. It returns microseconds since the epoch. Keys then last an hour longer.
	Clock func() int64
	// Penalty is the rule by which refusals block a key. The zero rule counts none.
	Penalty penalty.Rule
	// Term is how long units in flight count in Redis unless their server confirms them.
	Term time.Duration
}

// clocked returns a replacer that puts the epoch, the clock and the expiry of keys into a script. epoch is in seconds of
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

// Store decides in Redis. Any number of goroutines may use it.
type Store struct {
	client  rueidis.Client
	options Options
	rule    rule
	// blocks is the prefix of the names of blocks.
	blocks string
	// apart reports whether Redis has refused a script on several keys, as a cluster behind a proxy does.
	apart   atomic.Bool
	scripts struct {
		read, look, soon, all, relog, lock, heartbeat, beat, confirm, leave, tenant *script
	}
}

// call is a script to run, with its keys and arguments. A verb makes calls, runs them in a round trip, and reads the
// replies.
type call struct {
	// index is the index of the ask that the call is for.
	index  int
	script *script
	keys   []string
	args   []string
}

// run runs the calls in a round trip, and those whose scripts Redis has forgotten in another.
func (s *Store) run(ctx context.Context, calls []call) []rueidis.RedisResult {
	if len(calls) == 0 {
		return nil
	}
	args := func(call call) []string {
		if s.options.Clock != nil {
			return append(call.args[:len(call.args):len(call.args)], strconv.FormatInt(s.options.Clock(), 10))
		}
		return call.args
	}
	commands := make(rueidis.Commands, len(calls))
	for i, call := range calls {
		commands[i] = s.client.B().Evalsha().Sha1(call.script.sha).Numkeys(int64(len(call.keys))).Key(call.keys...).Arg(args(call)...).Build()
	}
	results := s.client.DoMulti(ctx, commands...)
	var again []int
	commands = commands[:0]
	for i, call := range calls {
		if err, ok := rueidis.IsRedisErr(results[i].Error()); ok && err.IsNoScript() {
			again = append(again, i)
			commands = append(commands, s.client.B().Eval().Script(call.script.source).Numkeys(int64(len(call.keys))).Key(call.keys...).Arg(args(call)...).Build())
		}
	}
	if len(again) > 0 {
		for i, res := range s.client.DoMulti(ctx, commands...) {
			results[again[i]] = res
		}
	}
	return results
}

// runOne runs a script.
func (s *Store) runOne(ctx context.Context, sc *script, keys []string, args ...string) rueidis.RedisResult {
	return s.run(ctx, []call{{script: sc, keys: keys, args: args}})[0]
}

// answer reads the parts of a script's reply in order. The first error stays in err, and later reads do nothing. name
// is the name of the key that the reply is about, for errors.
type answer struct {
	parts []rueidis.RedisMessage
	name  string
	err   error
}

// read returns an answer for a reply. The reply must have one of the given numbers of parts.
func read(res rueidis.RedisResult, name string, parts ...int) *answer {
	all, err := res.ToArray()
	r := &answer{parts: all, name: name}
	if err != nil {
		r.err = classify(err, name)
		return r
	}
	return r.expect(parts...)
}

// expect sets an error unless the number of parts left is one of the given numbers.
func (r *answer) expect(parts ...int) *answer {
	if r.err == nil && !slices.Contains(parts, len(r.parts)) {
		r.err = fmt.Errorf("%w (a reply of %d parts)", ErrDisagrees, len(r.parts))
	}
	return r
}

func (r *answer) next() (part rueidis.RedisMessage) {
	if r.err == nil && len(r.parts) == 0 {
		r.err = fmt.Errorf("%w (a reply that ends)", ErrDisagrees)
	}
	if r.err == nil {
		part, r.parts = r.parts[0], r.parts[1:]
	}
	return part
}

func (r *answer) number() (n int64) {
	part := r.next()
	if r.err == nil {
		if n, r.err = part.AsInt64(); r.err != nil {
			r.err = classify(r.err, r.name)
		}
	}
	return n
}

// pair reads two numbers, which are a word: see pairs.
func (r *answer) pair() uint64 {
	high, low := r.number(), r.number()
	return uint64(high)*1_000_000_000 + uint64(low)
}

// word reads a word, the time of the decision in microseconds, and a number. The number is negative if the key has a
// value that is not of this limit, and otherwise tells how many calls or units were taken.
func (r *answer) word() (word uint64, us, sign int64) {
	part := r.next()
	us, sign = r.number(), r.number()
	if r.err == nil {
		word, r.err = parseWord(part, sign < 0, r.name)
	}
	return word, us, sign
}

// block reads the word of the block with that name.
func (r *answer) block(name string) (word uint64) {
	part := r.next()
	if r.err == nil {
		word, r.err = parseBlock(part, name)
	}
	return word
}

// newScript joins parts to a script, puts the epoch and the clock in, and removes the comments.
func (s *Store) newScript(parts ...string) *script {
	return s.newScriptFrom(s.options.Epoch.Unix(), parts...)
}

// newScriptFrom is newScript with another epoch, in seconds of Unix time.
func (s *Store) newScriptFrom(epoch int64, parts ...string) *script {
	var builder strings.Builder
	for line := range strings.Lines(s.options.clocked(epoch).Replace(strings.Join(parts, ""))) {
		line, _, _ = strings.Cut(line, "--")
		if line = strings.TrimSpace(line); line != "" {
			builder.WriteString(line + "\n")
		}
	}
	sum := sha1.Sum([]byte(builder.String()))
	return &script{source: builder.String(), sha: hex.EncodeToString(sum[:])}
}

// parseWord reads a word as Redis holds it, and 0 if Redis has no value. foreign reports whether a script found a value
// that is no word.
func parseWord(reply rueidis.RedisMessage, foreign bool, name string) (word uint64, err error) {
	if reply.IsNil() {
		return 0, nil
	}
	value, err := reply.ToString()
	if err != nil {
		return 0, classify(err, name)
	}
	if !foreign {
		word, err = strconv.ParseUint(value, 10, 64)
	}
	if foreign || err != nil || word > policy.MaxWord {
		return 0, notAWord(name, value)
	}
	return word, nil
}

// instant converts microseconds since the epoch to an instant of policies.
func instant(us int64) policy.Instant {
	const limit = math.MaxInt64 / 1000
	return policy.Instant(min(max(us, -limit), limit) * 1000)
}

// ends returns the first millisecond at which a word is void. fresh is the instant from which the word is like an
// absent one.
func ends(fresh policy.Instant) int64 {
	const ms = policy.Instant(time.Millisecond)
	end := fresh / ms
	if fresh%ms > 0 {
		end++
	}
	return int64(end)
}
