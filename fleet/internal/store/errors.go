package store

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/rueidis"
)

// These are the errors of a call. Their texts say what to do.
var (
	// ErrAsking wraps errors of the network, and errors of Redis without a name here.
	ErrAsking = errors.New("ral: asking Redis")
	// ErrForeignValue means that the key has a value in Redis which is not of this limit. The value stays.
	ErrForeignValue = errors.New("ral: the value in Redis under this name is not of this limit; delete it, or give the limit another Name")
	ErrKeyTooLong   = errors.New("ral: a key has at most 65536 bytes; hash longer ones")
	// ErrDisagrees means that the script and the policy decided differently, because the servers have different
	// versions, or because of a defect.
	ErrDisagrees = errors.New("ral: the script in Redis and the policy do not agree; this is a defect, please report it")
	ErrCrossSlot = errors.New("ral: a cluster can decide on several keys at once only where they are kept together; set Config.Tag")
	// ErrUnfit means that Redis cannot keep limits now. Most errors below wrap it and say why.
	ErrUnfit      = errors.New("ral: Redis cannot keep limits now")
	ErrReadOnly   = fmt.Errorf("%w: this Redis is a read-only replica; connect to the primary", ErrUnfit)
	ErrFull       = fmt.Errorf("%w: Redis is out of memory and may not evict; raise its maxmemory", ErrUnfit)
	ErrNoReplicas = fmt.Errorf("%w: Redis has fewer replicas than it wants for a write; bring them back, or lower its min-replicas-to-write", ErrUnfit)
	ErrUnsaved    = fmt.Errorf("%w: Redis could not save its data and writes nothing until it can; see its log, or set its stop-writes-on-bgsave-error to no", ErrUnfit)
	// ErrNoRoll means that the roll of the servers (see servers.go), or the set of their limits, has a value in Redis
	// that is something else.
	ErrNoRoll         = fmt.Errorf("%w: the value in Redis under the name by which a limit counts its servers is something else; delete it, or give the limit another Name", ErrUnfit)
	ErrEvictionPolicy = fmt.Errorf("%w: Redis may evict keys of limits, which forgives their debts; set its maxmemory-policy to noeviction, or use another Redis", ErrUnfit)
	ErrUnchecked      = errors.New("ral: Redis does not say whether it may evict keys of limits; allow INFO, or see to it that its maxmemory-policy is noeviction")
	ErrTooOld         = fmt.Errorf("%w: Redis 6.2 or later is needed, or Valkey", ErrUnfit)
	ErrContended      = errors.New("ral: others wrote the key each time that it was to be rewritten; try again")
)

// These errors are kinds of ErrAsking. Package fleet treats them as an outage of Redis.
var (
	ErrLogin          = fmt.Errorf("%w: it does not let this client in; set Username and Password of Config.Redis, or of the Client, to a user that is on", ErrAsking)
	ErrDenied         = fmt.Errorf("%w: this user may not do what limits need; allow it EVALSHA, EVAL, DEL, TIME, INFO, PING, GET, MGET, SET, PEXPIREAT and sorted sets, on the keys ral:*, and CLUSTER SLOTS in a cluster", ErrAsking)
	ErrLoading        = fmt.Errorf("%w: it is still reading its data from disk; wait until it has, and it is asked again", ErrAsking)
	ErrTooManyClients = fmt.Errorf("%w: it has as many connections as it may; raise its maxclients, or end some", ErrAsking)
	ErrProtected      = fmt.Errorf("%w: it is in protected mode; give it a password, or set its protected-mode to no", ErrAsking)
	ErrSpeaksTLS      = fmt.Errorf("%w: it speaks TLS; set Redis.TLSConfig, or connect to its plain port", ErrAsking)
	ErrPlain          = fmt.Errorf("%w: it does not speak TLS; leave out Redis.TLSConfig, or connect to its tls-port", ErrAsking)
)

// explained maps the codes of Redis's errors to errors of this package. Before Redis 7 an error in a script
// has the code behind the line that failed, sometimes with a minus sign. If a script lacks a permission,
// the error has words instead of a code.
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
	// These are the words of Redis 7.0.
	{"The user executing the script", ErrDenied},
	// These are the words of later versions, and of Valkey.
	{"ACL failure in script:", ErrDenied},
	{"LOADING", ErrLoading},
	{"ERR max number of clients", ErrTooManyClients},
	{"DENIED", ErrProtected},
}

// classify returns the error of this package for err, or else ErrAsking. It wraps err.
func classify(err error, names ...string) error {
	if why := named(err); why != nil {
		return fmt.Errorf("%w (%s: %w)", why, shown(names...), err)
	}
	return fmt.Errorf("%w: %w", ErrAsking, err)
}

// named returns the error of this package for an error of Redis, or nil.
func named(err error) error {
	if redis, ok := rueidis.IsRedisErr(err); ok {
		return nameOf(redis.Error())
	}
	return nil
}

func nameOf(says string) error {
	for _, e := range explained {
		if strings.HasPrefix(says, e.code+" ") || strings.Contains(says, ": "+e.code+" ") || strings.Contains(says, ": -"+e.code+" ") {
			return e.err
		}
	}
	return nil
}

func notAWord(name, value string) error {
	return fmt.Errorf("%w: %s holds %s", ErrForeignValue, shown(name), quoted(value))
}

// shown formats names in Redis for an error. An error must not tell a key, so the key's [Fingerprint]
// stands in its place.
func shown(names ...string) string {
	texts := make([]string, len(names))
	for i, name := range names {
		texts[i] = quoted(name)
		before, rest, _ := strings.Cut(name, "{")
		if before = strings.TrimSuffix(before, "#"); rest == "" || !strings.HasSuffix(before, ":") {
			// The name is not of a key.
			continue
		}
		if tag, tail, _ := strings.Cut(rest, "}"); tail != "" {
			before += "{" + tag + "}"
		}
		texts[i] = fmt.Sprintf("%q for key %s", before, Fingerprint(name[len(before):]))
	}
	return strings.Join(texts, ", ")
}

// Fingerprint returns the start of the SHA-256 of the key of a [Tail], in hexadecimal, as logs of
// package httplimit show keys.
func Fingerprint(tail string) string {
	key, hashed := strings.CutPrefix(tail, "#")
	key = strings.TrimSuffix(strings.TrimPrefix(key, "{"), "}")
	sum := sha256.Sum256([]byte(key))
	if hashed {
		// The key was hashed by Short, so its hash is in the name.
		_, _ = base64.RawURLEncoding.Decode(sum[:], []byte(key))
	}
	return hex.EncodeToString(sum[:6])
}

// quoted quotes s, and cuts it to 100 bytes.
func quoted(s string) string {
	const maxLength = 100
	if len(s) > maxLength {
		return fmt.Sprintf("%q... (%d bytes)", s[:maxLength], len(s))
	}
	return fmt.Sprintf("%q", s)
}
