//go:build race

package hostile

// slower is by how much fewer calls are made: everything takes ten times as long.
const slower = 8
