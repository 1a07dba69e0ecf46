// Package keycodec turns keys into bytes and back, for files of keys. [For] finds the codec
// of a type. It knows neither words nor files.
//
// Two keys that differ have different bytes, and bytes that are read give the key that they
// were made of or an error. A codec's name says all that the bytes depend on: a program that
// compares names before it reads cannot take the keys of one type for those of another.
//
// Start reading at [For]; wire.go is what the bytes are.
package keycodec
