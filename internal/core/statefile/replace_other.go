//go:build !unix

package statefile

// syncDir does nothing: directories cannot be synced here.
func syncDir(string) error { return nil }
