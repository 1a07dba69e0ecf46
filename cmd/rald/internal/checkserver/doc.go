// Package checkserver answers the requests by which a proxy asks whether another request may pass:
// those of nginx's auth_request, Caddy's forward_auth and Traefik's forwardAuth.
//
// Rules say which limits hold for which requests. A request is found again in the header fields
// that the proxy sets, and package httplimit decides on it, over the engines of package families.
//
// What a client sends must not choose the rule that it is held to. So only the fields that the
// rules name are read, only of connections from proxies that are trusted, and a path is brought
// into one form before it is matched.
//
// Begin with Door in door.go, and go on with original.go and parse.go.
package checkserver
