// Package guard keeps calls to a server that may be slow, or gone, from holding up their
// callers. Each call has a budget of time. While the server does not answer it is not
// asked, except by one call now and then.
//
// The budget bounds what a caller waits, and says nothing of the server: a caller may be
// late because its own machine is busy. The server is judged by whether and when its
// answers arrive, and an answer that arrives when its caller has gone counts as well.
//
// The package knows nothing of Redis, nor of limits. Start reading at [Do].
package guard
