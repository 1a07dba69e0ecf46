// Package copied copies a Limiter, which go vet is to find.
package copied

import "github.com/ral-limiter/ral/single"

func copied(l *single.Limiter) bool {
	other := *l
	return other.Choke()
}
