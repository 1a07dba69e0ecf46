// Package clientaddr finds a client's address by the connection and, if it comes from a trusted
// proxy, by a header field. It also bounds keys made of header fields.
package clientaddr
