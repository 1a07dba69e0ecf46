// Package release tests tools/release, and rehearses getting, installing and upgrading its modules.
package release
