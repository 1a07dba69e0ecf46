package inspect

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/ral-limiter/ral/internal/adapter/pagejson"
)

// nearlyFull is a share of MaxKeys, as in the alert RalTableNearlyFull.
const nearlyFull = 0.9

// alarms returns the faults that an operator must look at, the gravest first.
func alarms(ctx context.Context, limit limit, limitSummary *pagejson.LimitSummary, refused *refusals) (all []pagejson.Alarm) {
	add := func(format string, values ...any) {
		all = append(all, pagejson.Alarm{Words: fmt.Sprintf(format, values...)})
	}
	if limitSummary.Health != "" {
		add("%s", plain(limitSummary.Health))
	}
	if limitSummary.Trouble != "" {
		add("cannot be shown whole: %s", plain(limitSummary.Trouble))
	}
	if why, failing := limitSummary.Figures["SaveError"].(string); failing && limitSummary.Health == "" {
		add("the last save failed: %s", plain(why))
	}
	keys, maxKeys := number(limitSummary.Figures["Keys"]), number(limitSummary.Figures["MaxKeys"])
	if maxKeys > 0 && keys > nearlyFull*maxKeys {
		add("the table is %d%% full: %.0f of %.0f keys", int(100*keys/maxKeys), keys, maxKeys)
	}
	if refused.alarm {
		usual := "more than are admitted"
		if refused.usual >= 0 {
			usual = "and " + rounded(refused.usual) + " is usual"
		}
		add("%s calls a second are refused, %s", rounded(refused.now), usual)
		if most, err := limit.list(ctx, byRefused, 1, ""); err == nil && len(most.Rows) > 0 {
			all[len(all)-1].ID, all[len(all)-1].Key = most.Rows[0].ID, most.Rows[0].Key
		}
	}
	return all
}

// plain returns an error's text without the names of packages.
func plain(text string) string { return strings.ReplaceAll(text, "ral: ", "") }

// rounded returns a number for people: without decimals from 10 on, and otherwise with at most one
// decimal.
func rounded(n float64) string {
	if n < 10 {
		return fmt.Sprint(math.Round(10*n) / 10)
	}
	return fmt.Sprintf("%.0f", n)
}
