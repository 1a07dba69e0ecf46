package envoyserver

import (
	"strconv"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"github.com/ral-limiter/ral/cmd/rald/internal/rules"
	"github.com/ral-limiter/ral/internal/adapter/clientaddr"
)

// maxKey bounds keys and their parts, in bytes. A longer one is replaced by its hash, since clients
// choose values, and keys stay in memory.
const maxKey = 512

// appendKey appends the key for a descriptor's hits: "domain|key=value|key=value". A pattern
// replaces the values that share its limit. Escaped separators keep keys distinct.
func appendKey(to []byte, domain string, entries []*common.RateLimitDescriptor_Entry, match rules.Match) []byte {
	to = appendEscaped(to, domain)
	for i, rateLimitDescriptor_Entry := range entries {
		value := rateLimitDescriptor_Entry.GetValue()
		if match.Shared != nil && match.Shared[i] != "" {
			value = match.Shared[i]
		}
		to = appendEscaped(append(to, '|'), rateLimitDescriptor_Entry.GetKey())
		to = appendEscaped(append(to, '='), value)
	}
	return to
}

// appendEscaped appends a part of a key. A long part becomes its hash, behind an escape that no text
// has, before a copy of it would take memory.
func appendEscaped(to []byte, text string) []byte {
	if len(text) > maxKey {
		to, text = append(to, `\#`...), clientaddr.Hashed(text)
	}
	for i := range len(text) {
		switch char := text[i]; char {
		case '|', '=', '\\':
			to = append(to, '\\', char)
		default:
			to = append(to, char)
		}
	}
	return to
}

// bounded returns a key, or its hash if it is above maxKey. No domain begins with the hash's first byte.
func bounded(key []byte) string {
	if len(key) > maxKey {
		return clientaddr.Hashed(string(key))
	}
	return string(key)
}

// moreKey is the key under a rule's further limit i.
func moreKey(key string, i int) string { return "||" + strconv.Itoa(i) + "|" + key }

// A candidate's key is distinct from all descriptors' keys.
func candidateKey(key string) string { return "|" + key }
