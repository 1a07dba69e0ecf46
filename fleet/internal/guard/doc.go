// Package guard keeps calls to a server that may be slow, or gone, from holding up those
// who make them: each has a budget of time, and while the server does not answer, nobody
// asks it but one call now and then. It knows nothing of Redis, nor of limits. Start
// reading at [Do].
package guard
