// Package keycodec converts keys to bytes and back, for files. [For] returns the codec of a type.
//
// Different keys have different bytes; bytes give their key or an error. Codecs with equal names
// have the same bytes for the same keys, so a program that compares names never confuses types.
// Start reading at [For]; wire.go defines the bytes.
package keycodec
