package store

import (
	"crypto/sha1"
	_ "embed" // the scripts
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/ral-limiter/ral/internal/core/shape"
)

// The parts that scripts are made of. They share the names of their locals.
var (
	//go:embed lua/time.lua
	timeLua string
	//go:embed lua/read.lua
	readLua string
	//go:embed lua/write.lua
	writeLua string
	//go:embed lua/pace.lua
	paceLua string
	//go:embed lua/pacetake.lua
	paceTakeLua string
	//go:embed lua/paceback.lua
	paceBackLua string
	//go:embed lua/fixed.lua
	fixedLua string
	//go:embed lua/fixedtake.lua
	fixedTakeLua string
	//go:embed lua/fixedback.lua
	fixedBackLua string
	//go:embed lua/sliding.lua
	slidingLua string
	//go:embed lua/slidingtake.lua
	slidingTakeLua string
	//go:embed lua/slidingback.lua
	slidingBackLua string
	//go:embed lua/aligned.lua
	alignedLua string
	//go:embed lua/alignedtake.lua
	alignedTakeLua string
	//go:embed lua/alignedback.lua
	alignedBackLua string
	//go:embed lua/log.lua
	logLua string
	//go:embed lua/takes.lua
	takesLua string
	//go:embed lua/back.lua
	backLua string
	//go:embed lua/record.lua
	recordLua string
)

// algorithm is how a kind of limit is worked out by a script: from the pair h, l, at
// us, it sets h and l to the next word, and ms to when that ends, if the call is allowed.
type algorithm struct {
	body   string
	params string // what the script is told of the limit and of the call
	count  int    // so many of them
}

var algorithms = kindsOf(
	newAlgorithm(calling(paceLua, paceTakeLua), "ah, al, rh, rl, fh, fl, e, x"),
	newAlgorithm(calling(fixedLua, fixedTakeLua), "n, limit, d, half, length, last, step, e, patience, rest"),
	newAlgorithm(calling(slidingLua, slidingTakeLua), "n, limit, size, d, over, per, last, e, patience, rest"),
	newAlgorithm(calling(alignedLua, alignedTakeLua), "n, limit, full, d, over, per, last, e, patience, zero"),
)

// givers are how units are given back or charged: in the same way, but that ms is nil if
// the word is to stay, and gone is set if the next one means nothing already. First they
// are told which word means that a take is undone, and what is put in its place.
var givers = kindsOf(
	newAlgorithm(calling(paceLua, paceBackLua), undone+"n, ah, al, dh, dl, rh, rl, fh, fl, e, x"),
	newAlgorithm(calling(fixedLua, fixedBackLua), undone+algorithms[shape.FixedWindow].params+", turn"),
	newAlgorithm(calling(slidingLua, slidingBackLua), undone+algorithms[shape.SlidingWindow].params+", turn"),
	newAlgorithm(calling(alignedLua, alignedBackLua), undone+algorithms[shape.AlignedWindow].params+", turn"),
)

const undone = "wh, wl, bh, bl, ends, "

func kindsOf(pace, fixed, sliding, aligned algorithm) map[shape.Kind]algorithm {
	return map[shape.Kind]algorithm{
		shape.Funnel: pace, shape.Queue: pace, shape.Bursty: pace, shape.FixedWindow: fixed, shape.SlidingWindow: sliding,
		shape.AlignedWindow: aligned,
	}
}

// calling puts what a call does into how a word is read.
func calling(body, call string) string { return strings.Replace(body, "CALL\n", call, 1) }

func newAlgorithm(body, params string) algorithm {
	return algorithm{body: body, params: params, count: strings.Count(params, ",") + 1}
}

// unpack is how a script reads its parameters: doubles in one argument, which are
// cheaper to pass than so many decimals.
func (a algorithm) unpack() string {
	return fmt.Sprintf("local %s = struct.unpack('<%s', ARGV[1])\n", a.params, strings.Repeat("d", a.count))
}

// script is what Redis runs, and the name by which it knows that.
type script struct{ source, sha string }

// newScript puts a script together for a store: comments are left out, and what
// depends on the epoch and the clock is filled in.
func (s *Store) newScript(parts ...string) *script {
	return s.newScriptFrom(s.options.Epoch.Unix(), parts...)
}

// newScriptFrom is newScript for a script that counts from epoch, in seconds of Unix time.
func (s *Store) newScriptFrom(epoch int64, parts ...string) *script {
	var b strings.Builder
	for line := range strings.Lines(s.options.clocked(epoch).Replace(strings.Join(parts, ""))) {
		line, _, _ = strings.Cut(line, "--")
		if line = strings.TrimSpace(line); line != "" {
			b.WriteString(line + "\n")
		}
	}
	sum := sha1.Sum([]byte(b.String()))
	return &script{source: b.String(), sha: hex.EncodeToString(sum[:])}
}

// takeScript decides calls on words. It replies the time, and for each key the word from
// before, or Redis's error, and how many calls took, -1 if what is there is no word; and then
// what there was of blocks.
func (s *Store) takeScript(a algorithm) *script {
	body := a.body
	if strings.HasSuffix(a.params, "rest") {
		body = "local rest = rest\n" + body
	}
	format, _, _ := strings.Cut(writeLua, "redis.call")
	return s.newScript(timeLua, a.unpack(), s.rule.local(), strings.NewReplacer(
		"READ", strings.Replace(readLua, "local w = redis.call('GET', key)\n", "", 1), "BODY", body, "FORMAT", format,
		"BLOCK", blockLua, "PUNISH", punishLua,
	).Replace(takesLua))
}

// backScript gives back or charges units of a word. It replies the word from before, the
// time, 0, and the next word as a pair; or, of what is no word, as those that read one.
func (s *Store) backScript(a algorithm) *script {
	return s.newScript("local key = KEYS[1]\n", timeLua, a.unpack(), strings.NewReplacer(
		"READ", readLua, "BODY", a.body, "WRITE", writeLua,
	).Replace(backLua))
}
