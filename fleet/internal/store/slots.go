package store

import (
	"context"
	"errors"
	"net"
	"strconv"

	"github.com/redis/rueidis"
)

// SlotCount is the number of slots in a cluster.
const SlotCount = 1 << 14

// SlotRange is a range of slots of a node of a cluster.
type SlotRange struct {
	First, Last int
	// Node is the address of the primary.
	Node string
}

// Slots asks all nodes of a cluster for the cluster's slots, and returns the first answer. It returns an error if
// no node answers before ctx ends.
func (s *Store) Slots(ctx context.Context) ([]SlotRange, error) {
	failure := errNoNode
	for ranges, err := range askNodes(ctx, s.client.Nodes(), func(_ string, client rueidis.Client) ([]SlotRange, error) {
		var ranges []SlotRange
		reply, err := client.Do(ctx, client.B().ClusterSlots().Build()).ToArray()
		if err == nil {
			ranges, err = parseSlots(reply)
		}
		if err != nil {
			err = classify(err, "CLUSTER SLOTS")
		}
		return ranges, err
	}) {
		if err == nil {
			return ranges, nil
		}
		failure = err
	}
	return nil, failure
}

var errSlots = errors.New("not a list of slots")

// parseSlots reads the reply of CLUSTER SLOTS: ranges of first slot, last slot, and nodes (host,
// port) with the primary first.
func parseSlots(reply []rueidis.RedisMessage) (ranges []SlotRange, err error) {
	for _, message := range reply {
		r := &answer{}
		r.parts, r.err = message.ToArray()
		first, last := r.number(), r.number()
		primary := r.next()
		node := &answer{err: r.err}
		if r.err == nil {
			node.parts, node.err = primary.ToArray()
		}
		name := node.next()
		// The host is nil for the node asked, which also names itself.
		host, _ := name.ToString()
		port := node.number()
		switch {
		case node.err != nil:
			return nil, node.err
		case first < 0 || last < first || last >= SlotCount:
			return nil, errSlots
		}
		ranges = append(ranges, SlotRange{int(first), int(last), net.JoinHostPort(host, strconv.FormatInt(port, 10))})
	}
	return ranges, nil
}

// Slot returns the slot of the key with that Tail.
func (l *Limit) Slot(tail string) int { return slot(hashTag(l.prefix + tail)) }

// ProbeIn returns the name of a key that has no value, in a slot for which has returns true. It returns "" if it finds
// none.
func (s *Store) ProbeIn(has func(slot int) bool) string {
	for i := range 64 * SlotCount {
		if tag := strconv.Itoa(i); has(slot(tag)) {
			return "ral:" + s.options.Name + ":probe{" + tag + "}"
		}
	}
	return ""
}

// Probe reads a key of ProbeIn, to test whether the node of its slot answers.
func (s *Store) Probe(ctx context.Context, name string) error {
	err := s.client.Do(ctx, s.client.B().Get().Key(name).Build()).Error()
	if err == nil || rueidis.IsRedisNil(err) {
		return nil
	}
	return classify(err, name)
}

// slot returns CRC16 (polynomial 0x1021) of a hash tag, modulo SlotCount.
func slot(tag string) int {
	crc := uint16(0)
	for i := range len(tag) {
		crc ^= uint16(tag[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc % SlotCount)
}
