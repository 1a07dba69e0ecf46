package policy

import "fmt"

// FieldError reports a setting that was refused: where it stands, which it is,
// what it was, and what would have been accepted. Use errors.As to reach it.
type FieldError struct {
	Of    string // what was being made, such as "Funnel" or "engine.Config"
	Field string // the parameter's name
	Value any    // what was given
	Want  string // what is accepted
}

// Error reads, for example, "ral: Funnel: capacity is 0, want 1 or more".
func (e *FieldError) Error() string {
	return fmt.Sprintf("ral: %s: %s is %v, want %s", e.Of, e.Field, e.Value, e.Want)
}
