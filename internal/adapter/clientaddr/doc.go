// Package clientaddr finds the address of a client behind proxies: by the address of the connection
// and, where it comes from a proxy that is trusted, by what the proxies wrote into a header
// field. It also bounds the keys that are made of header fields. It is for middleware, and knows
// neither requests nor limits. Start reading at [New].
package clientaddr
