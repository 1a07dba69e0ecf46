// Package checkserver answers a proxy's questions whether a request may pass: nginx's auth_request,
// Caddy's forward_auth and Traefik's forwardAuth. It restores the request from the proxy's header
// fields; package httplimit decides by rules, over the engines of package families.
//
// A client must not choose its rule by what it sends. So only fields named by the rules are read,
// only from trusted proxies, and a path is normalized before it is matched.
//
// Begin with Door in server.go, and go on with original.go and parse.go.
package checkserver
