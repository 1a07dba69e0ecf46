// Package release tests tools/release: what it prepares and what it refuses, and, by a rehearsal,
// that users can get, install and upgrade what is tagged then.
package release
