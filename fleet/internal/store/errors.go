package store

import (
	"errors"
	"fmt"
	"strings"

	"github.com/redis/rueidis"
)

// These errors say what can be wrong with a call, apart from Redis not answering.
var (
	// ErrAsking means that Redis did not answer, or with an error that means nothing
	// here: this is wrapped around whatever the network or Redis said.
	ErrAsking = errors.New("ral: asking Redis")
	// ErrForeignValue means that Redis holds something else under a key of ours. It is
	// left as it is.
	ErrForeignValue = errors.New("ral: what Redis holds under this name is not of this limit; delete it, or give the limit another Name")
	// ErrKeyTooLong means that a key has more than 64 KiB.
	ErrKeyTooLong = errors.New("ral: a key has at most 65536 bytes; hash longer ones")
	// ErrDisagrees means that what the script did is not what the policy says: the
	// servers do not run the same version, or the two have a defect.
	ErrDisagrees = errors.New("ral: the script in Redis and the policy do not agree; this is a defect, please report it")
	// ErrCrossSlot means that the keys of one call are in different parts of a cluster.
	ErrCrossSlot = errors.New("ral: a cluster can decide on several keys at once only where they are kept together; set Config.Tag")
	// ErrUnfit means that Redis cannot keep limits now. All errors below it that wrap it say why.
	ErrUnfit = errors.New("ral: Redis cannot keep limits now")
	// ErrReadOnly means that the Redis asked is a replica.
	ErrReadOnly = fmt.Errorf("%w: this Redis is a read-only replica; connect to the primary", ErrUnfit)
	// ErrFull means that Redis has no memory left.
	ErrFull = fmt.Errorf("%w: Redis is out of memory and may not evict; raise its maxmemory", ErrUnfit)
	// ErrNoReplicas means that Redis writes nothing, for want of replicas.
	ErrNoReplicas = fmt.Errorf("%w: Redis has fewer replicas than it wants for a write; bring them back, or lower its min-replicas-to-write", ErrUnfit)
	// ErrUnsaved means that Redis writes nothing, as it could not save its data.
	ErrUnsaved = fmt.Errorf("%w: Redis could not save its data and writes nothing until it can; see its log, or set its stop-writes-on-bgsave-error to no", ErrUnfit)
	// ErrNoRoll means that Redis holds something else under the name of the roll of
	// servers, or under that of their limits.
	ErrNoRoll = fmt.Errorf("%w: what Redis holds under the name by which a limit counts its servers is something else; delete it, or give the limit another Name", ErrUnfit)
	// ErrEvictionPolicy means that Redis may drop keys that still count.
	ErrEvictionPolicy = fmt.Errorf("%w: Redis may evict keys of limits, which forgives what they owe; set its maxmemory-policy to noeviction, or use another Redis", ErrUnfit)
	// ErrUnchecked means that Redis does not tell whether a limit is safe there.
	ErrUnchecked = errors.New("ral: Redis does not say whether it may evict keys of limits; allow INFO, or see to it that its maxmemory-policy is noeviction")
	// ErrTooOld means that Redis lacks what the scripts use.
	ErrTooOld = fmt.Errorf("%w: Redis 6.2 or later is needed, or Valkey", ErrUnfit)
	// ErrContended means that others wrote a key again and again while it was rewritten.
	ErrContended = errors.New("ral: others wrote the key each time that it was to be rewritten; try again")
)

// These are kinds of ErrAsking. A client that Redis does not let in, or does not let do
// something, or that has to wait for it, is answered as if Redis were not there.
var (
	// ErrLogin means that Redis does not let the client in.
	ErrLogin = fmt.Errorf("%w: it does not let this client in; set Username and Password of Config.Redis, or of the Client, to those of a user that is on", ErrAsking)
	// ErrDenied means that the user may not do what limits need.
	ErrDenied = fmt.Errorf("%w: this user may not do what limits need; allow it EVALSHA, EVAL, DEL, TIME, INFO, PING, GET, MGET, SET, PEXPIREAT and sorted sets, on the keys ral:*, and CLUSTER SLOTS in a cluster", ErrAsking)
	// ErrLoading means that Redis has just been started.
	ErrLoading = fmt.Errorf("%w: it is still reading its data from disk; wait until it has, and it is asked again", ErrAsking)
	// ErrTooManyClients means that Redis has as many connections as it may.
	ErrTooManyClients = fmt.Errorf("%w: it has as many connections as it may; raise its maxclients, or end some", ErrAsking)
	// ErrProtected means that Redis takes connections of its own machine only.
	ErrProtected = fmt.Errorf("%w: it is in protected mode; give it a password, or set its protected-mode to no", ErrAsking)
	// ErrSpeaksTLS and ErrPlain mean that only one side speaks TLS.
	ErrSpeaksTLS = fmt.Errorf("%w: it speaks TLS; set Redis.TLSConfig, or connect to its plain port", ErrAsking)
	ErrPlain     = fmt.Errorf("%w: it does not speak TLS; leave out Redis.TLSConfig, or connect to its tls-port", ErrAsking)
)

// explained are the codes of Redis's errors that have a name here. Before Redis 7 they
// stand in the middle of an error, behind where the script failed, some with the sign of
// an error before them. What a user may not do in a script has no code, but words.
var explained = []struct {
	code string
	err  error
}{
	{"WRONGTYPE", ErrForeignValue},
	{"READONLY", ErrReadOnly},
	{"OOM", ErrFull},
	{"NOREPLICAS", ErrNoReplicas},
	{"MISCONF", ErrUnsaved},
	{"CROSSSLOT", ErrCrossSlot},
	{"NOAUTH", ErrLogin},
	{"WRONGPASS", ErrLogin},
	{"NOPERM", ErrDenied},
	{"The user executing the script", ErrDenied}, // Redis 7.0
	{"ACL failure in script:", ErrDenied},        // later, and Valkey
	{"LOADING", ErrLoading},
	{"ERR max number of clients", ErrTooManyClients},
	{"DENIED", ErrProtected},
}

// explain wraps what went wrong with the key of that name.
func explain(err error, name string) error {
	if why := named(err); why != nil {
		return fmt.Errorf("%w (%s: %w)", why, shown(name), err)
	}
	return fmt.Errorf("%w: %w", ErrAsking, err)
}

// named returns the name that an error of Redis's has here, or nil.
func named(err error) error {
	if redis, ok := rueidis.IsRedisErr(err); ok {
		return nameOf(redis.Error())
	}
	return nil
}

// nameOf is named for what Redis says.
func nameOf(says string) error {
	for _, e := range explained {
		if strings.HasPrefix(says, e.code+" ") || strings.Contains(says, ": "+e.code+" ") || strings.Contains(says, ": -"+e.code+" ") {
			return e.err
		}
	}
	return nil
}

// notAWord tells what is under a name that should be a word.
func notAWord(name, value string) error {
	return fmt.Errorf("%w: %s holds %s", ErrForeignValue, shown(name), shown(value))
}

// shown quotes what may be anything, and cuts what is long.
func shown(s string) string {
	const most = 100
	if len(s) > most {
		return fmt.Sprintf("%q... (%d bytes)", s[:most], len(s))
	}
	return fmt.Sprintf("%q", s)
}
