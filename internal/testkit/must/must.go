// Package must ends a test, or fails it, unless a call succeeds, an event happens or a text is as expected.
package must

// Get returns the value. It panics if there is an error.
func Get[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
