// Package servebench measures rald beside what programs in other languages use for limits: a
// script on Redis, and Envoy's rate limit service with its Redis. All of them are processes of
// their own on this machine, and answer the same load generators in turn.
//
// Start reading at [Run].
package servebench
