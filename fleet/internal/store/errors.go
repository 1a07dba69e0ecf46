package store

import (
	"errors"
	"fmt"
	"strings"

	"github.com/redis/rueidis"
)

// What can be wrong with a call, besides that Redis does not answer.
var (
	// ErrAsking means that Redis did not answer, or with an error that means nothing
	// here: this is wrapped around whatever the network or Redis said.
	ErrAsking = errors.New("ral: asking Redis")
	// ErrNotAWord means that Redis holds something else under a key of ours. It is
	// left as it is.
	ErrNotAWord = errors.New("ral: what Redis holds under this name is not of this limit; delete it, or give the limit another Name")
	// ErrKeyTooLong means that a key has more than 64 KiB.
	ErrKeyTooLong = errors.New("ral: a key has at most 65536 bytes; hash longer ones")
	// ErrDisagrees means that what the script did is not what the policy says: the
	// servers do not run the same version, or the two have a defect.
	ErrDisagrees = errors.New("ral: the script in Redis and the policy do not agree; this is a defect, please report it")
	// ErrCrossSlot means that the keys of one call are in different parts of a cluster.
	ErrCrossSlot = errors.New("ral: a cluster can decide on several keys at once only where they are kept together; set Config.Tag")
	// ErrReadOnly means that the Redis asked is a replica.
	ErrReadOnly = errors.New("ral: this Redis is a read-only replica; connect to the primary")
	// ErrFull means that Redis has no memory left.
	ErrFull = errors.New("ral: Redis is out of memory and may not evict; raise its maxmemory")
	// ErrEvicts means that Redis may drop keys that still count.
	ErrEvicts = errors.New("ral: Redis may evict keys of limits, which forgives what they owe; set its maxmemory-policy to noeviction, or use another Redis")
	// ErrUnchecked means that Redis does not tell whether a limit is safe there.
	ErrUnchecked = errors.New("ral: Redis does not say whether it may evict keys of limits; allow INFO, or see to it that its maxmemory-policy is noeviction")
	// ErrTooOld means that Redis lacks what the scripts use.
	ErrTooOld = errors.New("ral: Redis 6.2 or later is needed, or Valkey")
	// ErrContended means that others wrote a key again and again while it was rewritten.
	ErrContended = errors.New("ral: others wrote the key each time that it was to be rewritten; try again")
)

// explained are the codes of Redis's errors that have a name here. Older ones stand in
// the middle of an error, behind where the script failed.
var explained = []struct {
	code string
	err  error
}{
	{"WRONGTYPE", ErrNotAWord},
	{"READONLY", ErrReadOnly},
	{"OOM", ErrFull},
	{"CROSSSLOT", ErrCrossSlot},
}

// explain wraps what went wrong with the key of that name.
func explain(err error, name string) error {
	if redis, ok := rueidis.IsRedisErr(err); ok {
		for _, e := range explained {
			if strings.HasPrefix(redis.Error(), e.code+" ") || strings.Contains(redis.Error(), ": "+e.code+" ") {
				return fmt.Errorf("%w (%s: %w)", e.err, shown(name), err)
			}
		}
	}
	return fmt.Errorf("%w: %w", ErrAsking, err)
}

// notAWord tells what is under a name that should be a word.
func notAWord(name, value string) error {
	return fmt.Errorf("%w: %s holds %s", ErrNotAWord, shown(name), shown(value))
}

// shown quotes what may be anything, and cuts what is long.
func shown(s string) string {
	const most = 100
	if len(s) > most {
		return fmt.Sprintf("%q... (%d bytes)", s[:most], len(s))
	}
	return fmt.Sprintf("%q", s)
}
