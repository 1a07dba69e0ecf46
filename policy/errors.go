package policy

import "fmt"

// FieldError reports a refused setting. Use errors.As to reach it.
type FieldError struct {
	// Of is the constructor or struct, such as "Funnel" or "engine.Config".
	Of string
	// Field is the parameter's name.
	Field string
	// Value is the value that was refused.
	Value any
	// Want names the accepted values.
	Want string
}

// Error reads, for example, "ral: Funnel: capacity is 0, want 1 or more".
func (e *FieldError) Error() string {
	return fmt.Sprintf("ral: %s: %s is %v, want %s", e.Of, e.Field, e.Value, e.Want)
}
