// Package release tests tools/release, and rehearses that users can get, install and upgrade the
// modules that it tags.
package release
