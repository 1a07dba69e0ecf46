package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"
)

// tokens are hashes.
type tokens [][sha256.Size]byte

func newTokens(of map[string]string) (all tokens) {
	for _, token := range of {
		all = append(all, sha256.Sum256([]byte(token)))
	}
	return all
}

// has reports whether a request has a token, as a bearer or password. It takes constant time.
func (t tokens) has(request *http.Request) bool {
	_, given, ok := request.BasicAuth()
	if !ok {
		scheme, bearer, _ := strings.Cut(request.Header.Get("Authorization"), " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return false
		}
		given = bearer
	}
	sum := sha256.Sum256([]byte(given))
	found := 0
	for i := range t {
		found |= subtle.ConstantTimeCompare(sum[:], t[i][:])
	}
	return found == 1
}
