package httplimit

// Served describes a handler's answer, for Options.Charge.
type Served struct {
	// Status is 0 if the handler panicked before it wrote anything, or took over the connection.
	// Status is 200 if the handler returned before it wrote anything, also if a router writes an
	// error later.
	Status int
	// Bytes is the size of the body as the handler wrote it, without bytes after it took over the
	// connection. Bytes is 0 for HEAD.
	Bytes int64
	// Events is the number of server-sent events in these bytes. It is counted for Limit.Stream alone.
	Events int64
	// Hijacked reports whether the handler took over the connection.
	Hijacked bool
	// Panicked reports whether the handler panicked, http.ErrAbortHandler included.
	Panicked bool
}
