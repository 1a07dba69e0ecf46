// Package guard keeps calls to a server that is slow or gone from holding up their callers. Each
// call has a budget of time. While the server does not answer, only an occasional probe asks it.
//
// The budget bounds a caller's wait and does not judge the server: a caller may be late because its
// own machine is busy. The server is judged by whether and when its answers arrive, also after the
// caller has gone.
//
// Start reading at [Do].
package guard
