package testenv_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/internal/testkit/testenv"
)

func TestSeedComesFromTheEnvironment(t *testing.T) {
	t.Setenv(testenv.SeedVariable, "")
	assert.Equal(t, uint64(1), testenv.Seed(t))
	t.Setenv(testenv.SeedVariable, "18446744073709551615")
	assert.Equal(t, ^uint64(0), testenv.Seed(t))
	t.Setenv(testenv.SeedVariable, "random")
	assert.NotEqual(t, testenv.Seed(t), testenv.Seed(t))
}
