package traffic

// Keys numbers keys from 0. A number that was given up is used again.
type Keys struct {
	// Max bounds the keys that are known at once. Pinned keys may exceed it.
	Max int
	// CanGo reports whether a key can be given up, and forgets it if so. nil means that none can.
	CanGo func(number uint32) bool
	// Forgotten counts keys that were given up, and Unknown the calls of Number for keys without room.
	Forgotten, Unknown int64

	numbers map[string]uint32
	names   []string
	pins    []uint32
	free    []uint32
	pause   int // calls of Number without room before the next sweep
}

// Number returns the number of a key. ok is false if there is no room.
func (k *Keys) Number(key []byte) (number uint32, ok bool) {
	if number, ok := k.numbers[string(key)]; ok {
		return number, true
	}
	if len(k.numbers) >= k.Max && !k.sweep() {
		k.Unknown++
		return 0, false
	}
	if k.numbers == nil {
		k.numbers = map[string]uint32{}
	}
	number = uint32(len(k.names))
	name := string(key)
	if end := len(k.free) - 1; end >= 0 {
		number, k.free = k.free[end], k.free[:end]
		k.names[number] = name
	} else {
		k.names, k.pins = append(k.names, name), append(k.pins, 0)
	}
	k.numbers[name] = number
	return number, true
}

// sweep gives up keys, and reports whether there is room. After a sweep of little success many calls pass before the next,
// so that the calls share its cost.
func (k *Keys) sweep() bool {
	if k.CanGo == nil || k.pause > 0 {
		k.pause--
		return false
	}
	before := len(k.numbers)
	for name, number := range k.numbers {
		if k.pins[number] == 0 && k.CanGo(number) {
			delete(k.numbers, name)
			k.names[number] = ""
			k.free = append(k.free, number)
			k.Forgotten++
		}
	}
	if before-len(k.numbers) <= k.Max/16 {
		k.pause = k.Max / 16
	}
	return len(k.numbers) < k.Max
}

// Pin keeps a key from being given up until Unpin is called as often.
func (k *Keys) Pin(number uint32) { k.pins[number]++ }

// Unpin undoes a Pin.
func (k *Keys) Unpin(number uint32) { k.pins[number]-- }

// Name returns a key that is known.
func (k *Keys) Name(number uint32) string { return k.names[number] }

// Len returns how many keys are known.
func (k *Keys) Len() int { return len(k.numbers) }

// Size returns one more than the highest number, for tables by number.
func (k *Keys) Size() int { return len(k.names) }

// All calls yield with the number of each known key, in an order of no meaning.
func (k *Keys) All(yield func(number uint32) bool) {
	for _, number := range k.numbers {
		if !yield(number) {
			return
		}
	}
}
