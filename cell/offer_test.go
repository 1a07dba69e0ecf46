package cell

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/policy"
	"github.com/ral-limiter/ral/table"
)

func (d *desk) offer(key string) Offer {
	o := Offer{At: d.instant()}
	o.Level, o.Terms, o.Before, o.Returned = d.Known(key, d.hashOf(key), o.At)
	return o
}

// An offer is for the word of a known, used key under the present limit.
func TestAnOfferIsOfAPlainWord(t *testing.T) {
	d := newDesk(t, funnel(5, 1, time.Hour), nil)
	offers := func() bool {
		t.Helper()
		var got policy.Decision
		o, one := d.offer("key"), d.offer("key")
		if o.Level == nil {
			return false
		}
		sure := o.Take(1, &got)
		_, sureOfOne := one.TakeOne()
		require.Equal(t, sure, sureOfOne)
		require.Equal(t, o, one)
		return sure
	}
	assert.False(t, offers(), "a new key is offered")
	require.True(t, d.Choke("key"))
	d.settle()
	require.True(t, offers())
	require.True(t, d.Reset("key"))
	assert.False(t, offers(), "an unused key is offered")
	require.True(t, d.Choke("key"))
	require.True(t, offers())
	d.table.Apply(table.ChangeCommand[string](table.NewChange(funnel(7, 7, time.Hour), d.instant())))
	assert.EqualValues(t, 7, d.Limit().Limit())
	assert.False(t, offers(), "an offer of the limit before stands")
	assert.EqualValues(t, 5, d.Take("key", 1).Remaining, "the key's word was not carried over")
	d.settle()
	assert.True(t, offers())
}

// Calls on several limits do not join a queue, which would make them wait.
func TestOffersOfAQueueAreOfNoTurn(t *testing.T) {
	d := newDesk(t, policy.Must(policy.Queue(3, 1, time.Second)), nil)
	require.True(t, d.Choke("key"))
	d.settle()
	for _, turn := range []bool{true, false} {
		var got policy.Decision
		o := d.offer("key")
		assert.Equal(t, !turn, o.Take(1, &got))
		allowed, sure := o.TakeOne()
		assert.Equal(t, []bool{!turn, !turn}, []bool{allowed && sure, sure})
		d.advance(time.Second)
	}
}
