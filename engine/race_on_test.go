//go:build race

package engine

// raceFactor makes large tests smaller under the race detector, which is ten
// times as slow and takes ten times the memory.
const raceFactor = 10
