package escape

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestHiddenVariableStaysOnTheStack(t *testing.T) {
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		x := 0
		to.set(Hide(&x))
		total += x
	}))
	assert.Equal(t, 101, total)
}

var (
	total int
	to    interface{ set(p *int) } = setter{}
)

type setter struct{}

func (setter) set(p *int) { *p = 1 }
