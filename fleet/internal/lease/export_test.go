package lease

import "context"

// Kill ends the leases as if their server had died: nothing is given back.
func (l *Leases) Kill() {
	l.abort()
	l.once.Do(func() { l.end(context.Background(), false) })
	_ = l.words.Close()
}
