package bench

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"slices"
	"strings"
)

// keyLength is typical of an API token, or an address with its port.
const keyLength = 20

// appendKey appends the i-th key's name: "tok_" and 16 hexadecimal digits. Names are distinct;
// consecutive names share only their beginning.
func appendKey(buffer []byte, i uint32) []byte {
	number := binary.BigEndian.AppendUint64(make([]byte, 0, 8), mix(uint64(i)))
	return hex.AppendEncode(append(buffer, "tok_"...), number)
}

// addressLength is the length of most IPv4 addresses, the usual keys of servers without accounts.
const addressLength = 13

// newAddress returns another name of the i-th key, as long as an address, in memory of its own.
func newAddress(i uint32) string {
	name := append(make([]byte, 0, addressLength), "addr_"...)
	number := binary.BigEndian.AppendUint32(make([]byte, 0, 4), i*0x9E3779B1)
	return string(hex.AppendEncode(name, number))
}

// mix is the finalizer of SplitMix64, a bijection on 64 bits.
func mix(x uint64) uint64 {
	x += 0x9E3779B97F4A7C15
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

// stream holds the keys of a caller: keys[i] is the name of the order[i]-th key, or keys is nil.
// Limiters share a stream. Names have their own bytes, contiguous in memory.
type stream struct {
	keys  []string
	order []uint32
}

func newStream(order []uint32) stream {
	var arena strings.Builder
	arena.Grow(len(order) * keyLength)
	name := make([]byte, 0, keyLength)
	for _, i := range order {
		arena.Write(appendKey(name, i))
	}
	all := arena.String()
	keys := make([]string, len(order))
	for i := range keys {
		keys[i] = all[i*keyLength : (i+1)*keyLength]
	}
	return stream{keys, order}
}

func (s stream) part(i, n int) stream {
	from, to := len(s.order)*i/n, len(s.order)*(i+1)/n
	part := stream{order: s.order[from:to]}
	if s.keys != nil {
		part.keys = s.keys[from:to]
	}
	return part
}

// draw returns n keys, one after the other.
func draw(n int, next func() uint32) []uint32 {
	order := make([]uint32, n)
	for i := range order {
		order[i] = next()
	}
	return order
}

func upTo(first, n int) []uint32 {
	next := uint32(first)
	return draw(n, func() uint32 { next++; return next - 1 })
}

// drawUniform draws n keys with equal probability.
func drawUniform(n, keys int, rand *rand.Rand) []uint32 {
	return draw(n, func() uint32 { return rand.Uint32N(uint32(keys)) })
}

// zipfExponent is close to 1, Zipf's law, which the generator does not accept.
const zipfExponent = 1.01

// drawZipf draws n keys, key r with a probability proportional to 1/(r+1)^zipfExponent.
func drawZipf(n, keys int, r *rand.Rand) []uint32 {
	zipf := rand.NewZipf(r, zipfExponent, 1, uint64(keys-1))
	return draw(n, func() uint32 { return uint32(zipf.Uint64()) })
}

const (
	// batch is the number of keys per ask; callers check in between whether to stop.
	batch = 64
	// drawsInAll bounds the memory of the streams: about 80 MiB.
	drawsInAll = 1 << 21
	// minDraws is the least length of a stream of several keys.
	minDraws = 1 << 15
)

// drawStreams draws the keys of each caller, the same in every run.
func drawStreams(workload Workload, callers int) []stream {
	switch {
	case workload.Keys == 1:
		return slices.Repeat([]stream{newStream(make([]uint32, batch))}, callers)
	case workload.Draw == DrawInTurn:
		return slices.Repeat([]stream{newStream(upTo(0, workload.Keys))}, callers)
	}
	streams := make([]stream, callers)
	n := min(max(drawsInAll/callers, minDraws), max(workload.Keys*4, minDraws))
	n -= n % batch
	for i := range streams {
		order := drawUniform
		if workload.Draw == DrawZipf {
			order = drawZipf
		}
		streams[i] = newStream(order(n, workload.Keys, rand.New(rand.NewPCG(uint64(i), uint64(workload.Keys)))))
	}
	return streams
}

// frequentKeys returns the names of the most asked keys that make up this share of all calls.
func frequentKeys(streams []stream, keys int, share float64) map[string]struct{} {
	times, calls := make([]float64, keys), 0.0
	for _, stream := range streams {
		for _, i := range stream.order {
			times[i]++
			calls++
		}
	}
	byTimes := upTo(0, keys)
	slices.SortStableFunc(byTimes, func(a, b uint32) int { return cmp.Compare(times[b], times[a]) })
	names := make(map[string]struct{})
	for _, i := range byTimes {
		if left := share * calls; left <= 0.5 {
			break
		}
		share -= times[i] / calls
		names[string(appendKey(nil, i))] = struct{}{}
	}
	return names
}
