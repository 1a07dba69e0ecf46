package answer

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestSlowestOfSeveralLimitsBinds(t *testing.T) {
	short, long := Quota{100, time.Minute}, Quota{1000, time.Hour}
	for _, c := range []struct {
		name, fields string
		// ours and rest are those before the answer to a call.
		ours, rest int64
		told       bool
		binds      Quota
		most       int64
	}{
		{"both told", `"a";r=7;t=3, "b";r=900;t=60`, 100, 0, true, short, 893},
		{"both told, the long has less", `"a";r=7;t=3, "b";r=5;t=60`, 100, 0, true, long, 100},
		{"the short alone", `"a";r=7;t=3`, 100, 501, true, short, 493},
		{"the short alone, the long begins anew", `"a";r=99;t=60`, 100, 20, true, short, 901},
		{"the short alone, the long is used up", `"a";r=7;t=60`, 100, 8, true, short, 1},
		{"the long alone", `"b";r=900;t=60`, 40, 0, false, short, 860},
		{"the long alone, less than ours", `"b";r=30;t=60`, 40, 0, true, long, 100},
	} {
		a := FieldsOf(headerOf(`RateLimit-Policy: "a";q=100;w=60, "b";q=1000;w=3600`, "RateLimit: "+c.fields), noon)
		assert.True(t, TellsSeveral(&a), c.name)
		most := BindSlowest(&a, c.ours, RestOf(&a, c.rest, 1, 10))
		assert.Equal(t, c.most, most, c.name)
		assert.Equal(t, c.binds, a.binds, c.name)
		assert.Equal(t, c.told, a.HasRemaining, c.name)
	}
}
