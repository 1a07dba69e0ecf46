package store

import (
	"embed"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"strings"

	"github.com/ral-limiter/ral/internal/core/shape"
)

//go:embed lua/*.lua
var files embed.FS

// lua returns the text of a file in lua, which is a part of scripts. Parts in one script share their local variables.
func lua(name string) string {
	text, err := files.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err)
	}
	return string(text)
}

// These parts are in several scripts.
var (
	timeLua, readLua, writeLua = lua("time"), lua("read"), lua("write")
	blockLua, punishLua        = lua("block"), lua("punish")
	logLua, recordLua, noteLua = lua("log"), lua("record"), lua("note")
)

// algorithm is the part of a script that decides a call for a kind of limit. The pair h, l is the word, and us the time
// at which it was read. If the call is allowed, the part sets h, l to the next word, and ms to the millisecond at which
// that word is void.
type algorithm struct {
	body string
	// params has the names of the parameters of the limit and the call, with commas between.
	params string
	// count is the number of params.
	count int
}

var algorithms = kindsOf(
	newAlgorithm(calling(lua("pace"), lua("pacetake")), "ah, al, rh, rl, fh, fl, e, x"),
	newAlgorithm(calling(lua("fixed"), lua("fixedtake")), "n, limit, d, half, length, last, step, e, patience, rest"),
	newAlgorithm(calling(lua("sliding"), lua("slidingtake")), "n, limit, size, d, over, per, last, e, patience, rest"),
	newAlgorithm(calling(lua("aligned"), lua("alignedtake")), "n, limit, full, d, over, per, last, e, patience, zero"),
)

// refunders are the parts that give units back or charge units. Unlike algorithms they leave ms nil to keep the word, and
// set gone if the next word is void already. Their first parameters are the word that a take left which is to be undone,
// and the word that replaces it.
var refunders = kindsOf(
	newAlgorithm(calling(lua("pace"), lua("paceback")), undone+"n, ah, al, dh, dl, rh, rl, fh, fl, e, x, gh, gl, nh, nl, kh, kl"),
	newAlgorithm(calling(lua("fixed"), lua("fixedback")), undone+algorithms[shape.FixedWindow].params+", turn"),
	newAlgorithm(calling(lua("sliding"), lua("slidingback")), undone+algorithms[shape.SlidingWindow].params+", turn"),
	newAlgorithm(calling(lua("aligned"), lua("alignedback")), undone+algorithms[shape.AlignedWindow].params+", turn"),
)

// undone has the first parameters of the refunders: the word of a take and its replacement, as pairs, and the end of the
// replacement.
const undone = "wh, wl, bh, bl, ends, "

func kindsOf(pace, fixed, sliding, aligned algorithm) map[shape.Kind]algorithm {
	return map[shape.Kind]algorithm{
		shape.Funnel: pace, shape.Queue: pace, shape.Bursty: pace, shape.FixedWindow: fixed, shape.SlidingWindow: sliding,
		shape.AlignedWindow: aligned,
	}
}

// calling inserts the decision of a call into the part that reads a word of its kind.
func calling(body, call string) string { return strings.Replace(body, "CALL\n", call, 1) }

func newAlgorithm(body, params string) algorithm {
	return algorithm{body: body, params: params, count: strings.Count(params, ",") + 1}
}

// unpack returns the line of a script that reads the parameters. They are doubles in one argument, which is faster to
// read than decimals.
func (a algorithm) unpack() string {
	return fmt.Sprintf("local %s = struct.unpack('<%s', ARGV[1])\n", a.params, strings.Repeat("d", a.count))
}

// pairs splits each number into billions and the rest, as the scripts do: a double cannot hold a word.
func pairs(numbers ...uint64) (all []float64) {
	for _, n := range numbers {
		hi, lo := bits.Div64(0, n, 1_000_000_000)
		all = append(all, float64(hi), float64(lo))
	}
	return all
}

// packed encodes doubles for struct.unpack.
func packed(figures []float64) string {
	buffer := make([]byte, 0, 8*len(figures))
	for _, value := range figures {
		buffer = binary.LittleEndian.AppendUint64(buffer, math.Float64bits(value))
	}
	return string(buffer)
}

type script struct{ source, sha string }
