package checkserver

import (
	"fmt"
	"net/http"
	"strings"
)

// routes finds a request's rule, by the most specific pattern. Rules for OPTIONS come before all
// others, so that one of any path exempts CORS's preflights.
type routes struct{ options, others http.ServeMux }

// add adds a rule. The error names a rule that is neither more nor less specific.
func (t *routes) add(pattern string, handler http.Handler) error {
	if strings.Fields(pattern)[0] == http.MethodOptions {
		return register(&t.options, pattern, handler)
	}
	return register(&t.others, pattern, handler)
}

// find returns the rule's pattern, or "", and the mux that has it.
func (t *routes) find(request *http.Request) (mux *http.ServeMux, pattern string) {
	if request.Method == http.MethodOptions {
		if _, pattern = t.options.Handler(request); pattern != "" {
			return &t.options, pattern
		}
	}
	_, pattern = t.others.Handler(request)
	return &t.others, pattern
}

// register adds a handler to a mux, and returns a panic about the pattern.
func register(mux *http.ServeMux, pattern string, handler http.Handler) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("%v", cause)
		}
	}()
	mux.Handle(pattern, handler)
	return nil
}
