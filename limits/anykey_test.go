package limits_test

import (
	"context"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

// callNoting is a limiter that keeps the latest call of Hold.
type callNoting struct {
	limits.Func[struct{}]
	call limits.Call[struct{}]
}

func (l *callNoting) Hold(_ context.Context, call limits.Call[struct{}]) (limits.Grant, error) {
	l.call = call
	return limits.Grant{}, nil
}

func TestForAnyKeyPassesAllFieldsOfACallButTheKey(t *testing.T) {
	var noting callNoting
	_, err := limits.ForAnyKey[string](&noting).Hold(t.Context(), limits.Call[string]{
		Key: "any", N: 2, Patience: time.Second, NoWait: true, Limit: policy.Must(policy.FixedWindow(3, time.Hour)), Brief: true,
	})
	require.NoError(t, err)
	got := reflect.ValueOf(noting.call)
	for i := range got.NumField() {
		if name := got.Type().Field(i).Name; name != "Key" {
			assert.False(t, got.Field(i).IsZero(), "the limiter received a call without %s, want all fields of the caller's", name)
		}
	}
}
