package store

import (
	"crypto/sha1"
	_ "embed" // the scripts
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/ral-limiter/ral/internal/core/shape"
)

// The parts of scripts. They share the names of their locals.
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

// algorithm is a script's decision for a kind of limit. If the call is allowed it sets the pair h,
// l, read at us, to the next word, and ms to its end.
type algorithm struct {
	body   string
	params string // of the limit and the call
	count  int    // of params
}

var algorithms = kindsOf(
	newAlgorithm(calling(paceLua, paceTakeLua), "ah, al, rh, rl, fh, fl, e, x"),
	newAlgorithm(calling(fixedLua, fixedTakeLua), "n, limit, d, half, length, last, step, e, patience, rest"),
	newAlgorithm(calling(slidingLua, slidingTakeLua), "n, limit, size, d, over, per, last, e, patience, rest"),
	newAlgorithm(calling(alignedLua, alignedTakeLua), "n, limit, full, d, over, per, last, e, patience, zero"),
)

// givers return or charge units. Unlike algorithms they leave ms nil to keep the word, and set gone
// if the next word is void already. Their first parameters are the word that an undone take left,
// and its replacement.
var givers = kindsOf(
	newAlgorithm(calling(paceLua, paceBackLua), undone+"n, ah, al, dh, dl, rh, rl, fh, fl, e, x, gh, gl, nh, nl, kh, kl"),
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

// calling inserts a call into the reading of a word.
func calling(body, call string) string { return strings.Replace(body, "CALL\n", call, 1) }

func newAlgorithm(body, params string) algorithm {
	return algorithm{body: body, params: params, count: strings.Count(params, ",") + 1}
}

// unpack reads a script's parameters: doubles in one argument are cheaper than decimals.
func (a algorithm) unpack() string {
	return fmt.Sprintf("local %s = struct.unpack('<%s', ARGV[1])\n", a.params, strings.Repeat("d", a.count))
}

type script struct{ source, sha string }

// newScript builds a script without comments, with the epoch and the clock.
func (s *Store) newScript(parts ...string) *script {
	return s.newScriptFrom(s.options.Epoch.Unix(), parts...)
}

// newScriptFrom is newScript with time from epoch, in seconds of Unix time.
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

// takeScript decides calls on words. It replies the time; for each key the old word or Redis's
// error, and the number of calls that took, -1 for a foreign value; then the blocks that it found.
// Before it, parts may define functions.
func (s *Store) takeScript(a algorithm, parts ...string) *script {
	body := a.body
	if strings.HasSuffix(a.params, "rest") {
		body = "local rest = rest\n" + body
	}
	format, _, _ := strings.Cut(writeLua, "redis.call")
	return s.newScript(strings.Join(parts, ""), timeLua, a.unpack(), s.rule.local(), strings.NewReplacer(
		"READ", strings.Replace(readLua, "local w = redis.call('GET', key)\n", "", 1), "BODY", body, "FORMAT", format,
		"BLOCK", blockLua, "PUNISH", punishLua,
	).Replace(takesLua))
}

// backScript returns or charges units of a word. It replies the old word, the time, 0, the next word
// as a pair, and 1 if it made the later takes again. For a foreign value it replies like a read.
func (s *Store) backScript(a algorithm, notes bool) *script {
	body, again, function := a.body, "", ""
	if notes {
		body, again, function = body+backNoteLua, againLua, noteLua
	}
	return s.newScript(function, "local key = KEYS[1]\n", timeLua, a.unpack(), strings.NewReplacer(
		"READ", readLua, "AGAIN", again, "BODY", body, "WRITE", writeLua,
	).Replace(backLua))
}
