package seeds_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/internal/testkit/seeds"
)

func TestOf(t *testing.T) {
	t.Setenv(seeds.Env, "")
	assert.Equal(t, uint64(1), seeds.Of(t))
	t.Setenv(seeds.Env, "18446744073709551615")
	assert.Equal(t, ^uint64(0), seeds.Of(t))
	t.Setenv(seeds.Env, "random")
	assert.NotEqual(t, seeds.Of(t), seeds.Of(t))
}
