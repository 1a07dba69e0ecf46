package envoyserver

import (
	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"github.com/ral-limiter/ral/cmd/rald/rules"
)

// longestKey is the most bytes of a key. Those of a request are bounded by longestMessage too.
const longestKey = 16 << 10

// appendKey appends what a descriptor's hits are counted under: "domain|key=value|key=value". An
// entry for which all values of a pattern share the limit has the pattern for its value. No two
// descriptors have the same key, as what separates them is escaped.
func appendKey(to []byte, domain string, entries []*common.RateLimitDescriptor_Entry, m rules.Match) []byte {
	to = appendEscaped(to, domain)
	for i, e := range entries {
		value := e.GetValue()
		if m.Shared != nil && m.Shared[i] != "" {
			value = m.Shared[i]
		}
		to = appendEscaped(append(to, '|'), e.GetKey())
		to = appendEscaped(append(to, '='), value)
	}
	return to
}

func appendEscaped(to []byte, text string) []byte {
	for i := range len(text) {
		switch c := text[i]; c {
		case '|', '=', '\\':
			to = append(to, '\\', c)
		default:
			to = append(to, c)
		}
	}
	return to
}

// candidateKey returns the key of a candidate, which is that of no descriptor.
func candidateKey(key string) string { return "|" + key }
