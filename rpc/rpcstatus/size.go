package rpcstatus

import "regexp"

var tooLarge = regexp.MustCompile(`(?i)\bmessage (size \d+ |is |after decompression |that decompresses to a size |with a size )*` +
	`(larger than (configured )?(max|\d)|exceeds ((the )?maximum (configured message )?size|sendMaxBytes)|too large)` +
	`|http\.MaxBytesReader limit`)

// TooLarge reports whether the message of a ResourceExhausted names the size of a message, and so no
// rate. It knows the texts of gRPC for Go, C++, Python, Java, .NET and Node, and of connect-go.
func TooLarge(message string) bool { return tooLarge.MatchString(message) }
