// Package fleet keeps one limit over many servers: it has the verbs and decisions of
// package engine, and the words of the keys live in a Redis or Valkey that all servers
// ask.
package fleet
