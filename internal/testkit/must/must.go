// Package must unwraps, in tests, results of calls that cannot fail unless the test is wrong.
package must

// Get returns the value. It panics if there is an error.
func Get[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
