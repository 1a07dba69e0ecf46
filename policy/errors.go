package policy

import "fmt"

// FieldError reports a refused setting. Use errors.As to reach it.
type FieldError struct {
	Of    string // the constructor or struct, such as "Funnel" or "engine.Config"
	Field string // the parameter's name
	Value any    // the value that was refused
	Want  string // the values that are accepted
}

// Error reads, for example, "ral: Funnel: capacity is 0, want 1 or more".
func (e *FieldError) Error() string {
	return fmt.Sprintf("ral: %s: %s is %v, want %s", e.Of, e.Field, e.Value, e.Want)
}
