package rules

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/cmd/rald/configfile"
)

// Any text gives the same rules each time, or faults of the file.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"domain: a\ndescriptors:\n  - key: k\n    value: v*\n    share_threshold: true\n    rate_limit: {unit: hour, requests_per_unit: 5, name: n, replaces: [{name: m}]}\n",
		"domain: a\nall_or_nothing: true\ndescriptors:\n  - key: k\n    rate_limit: {limit: 'funnel 100, 10/s', candidate: 'sliding 500/m'}\n    descriptors:\n      - key: l\n        shadow_mode: true\n        rate_limit: {unlimited: true}\n",
		"domain: &a a\ndescriptors: [{key: *a, rate_limit: {unit: SECOND, requests_per_unit: 4294967295}}]\n",
		shop, "domain: d\n<<: &a {descriptors: [{key: a, rate_limit: {limit: 'at most 1/s'}}]}", "a: &a [*a]",
		"domain: a\ndescriptors: [{key: k, rate_limit: {unit: eon}}]\n", "domain: [\n", "a: 1\na: 2\n", "", "- - -", "\x00", "domain: a\n---\ndomain: b\n",
	} {
		f.Add(seed, "k", "v")
	}
	f.Fuzz(func(t *testing.T, text, key, value string) {
		set, err := Parse(sources(text), Options{})
		if err != nil {
			joined, ok := err.(interface{ Unwrap() []error })
			if !assert.True(t, ok, "%v", err) {
				return
			}
			for _, one := range joined.Unwrap() {
				var of *configfile.Error
				if assert.True(t, errors.As(one, &of), "%v", one) {
					assert.Equal(t, "a.yaml", of.File)
				}
			}
			return
		}
		again, err := Parse(sources(text), Options{})
		assert.NoError(t, err)
		assert.Equal(t, set.Dump(), again.Dump())
		all := map[*Rule]bool{}
		for _, r := range set.Rules() {
			all[r] = true
			assert.True(t, r.Unlimited || r.Limit != nil || r.Unit.IsKnown(), "%s has no limit", r.Path)
		}
		for _, d := range set.domains {
			for _, entries := range [][]entry{nil, {{key, value}}, {{key, value}, {key, value}}} {
				m := Find(d, entries)
				assert.True(t, m.Rule == nil && m.Shared == nil || all[m.Rule])
			}
		}
	})
}
