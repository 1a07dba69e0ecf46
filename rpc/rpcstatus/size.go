package rpcstatus

import "regexp"

var tooLarge = regexp.MustCompile(`(?i)\bmessage (size \d+ |is |after decompression |that decompresses to a size |with a size )*` +
	`(larger than (configured )?(max (length allowed on current machine )?\(?\d|readMaxBytes \d|\d)|exceeds ((the )?maximum (configured message )?size|sendMaxBytes)|too large \(?\d)` +
	`|http\.MaxBytesReader limit`)

// TooLarge reports whether the message of a ResourceExhausted names the size of a message, and so no
// rate. It knows the texts of gRPC for Go, C++, Python, Java, .NET and Node, and of
// connect-go and connect-es. A message that is only called too large may exceed a quota, so most texts
// must hold a number.
func TooLarge(message string) bool { return tooLarge.MatchString(message) }
