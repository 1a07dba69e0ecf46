package rules

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/cmd/rald/internal/configfile"
	"github.com/ral-limiter/ral/policy"
)

type entry struct{ key, value string }

func (e entry) GetKey() string   { return e.key }
func (e entry) GetValue() string { return e.value }

func entries(text string) (all []entry) {
	for _, pair := range strings.Fields(text) {
		key, value, _ := strings.Cut(pair, "=")
		all = append(all, entry{key, value})
	}
	return all
}

func parse(t *testing.T, texts ...string) *Set {
	t.Helper()
	set, err := Parse(sources(texts...), Options{})
	require.NoError(t, err)
	return set
}

func sources(texts ...string) (all []Source) {
	for i, text := range texts {
		all = append(all, Source{Name: string(rune('a'+i)) + ".yaml", Text: []byte(text)})
	}
	return all
}

const shop = `
domain: shop
descriptors:
  - key: path
    value: /login
    rate_limit: {unit: minute, requests_per_unit: 5, name: login}
    descriptors:
      - key: user
        rate_limit: {unit: hour, requests_per_unit: 7, replaces: [{name: login}]}
      - key: user
        value: root
        rate_limit: {unlimited: true}
  - key: path
    value: /files/*
    share_threshold: true
    shadow_mode: true
    rate_limit: {unit: day, requests_per_unit: 100}
  - key: path
    value: /*/a*/b
    rate_limit: {unit: day, requests_per_unit: 1}
  - key: path
    quota_mode: true
    rate_limit: {unit: Week, requests_per_unit: 9}
`

// The oracle compares it with the reference's for any rules.
func TestFindFollowsTheFirstWildcard(t *testing.T) {
	shop := parse(t, shop).Domain("shop")
	for text, path := range map[string]string{
		"path=/login user=joe":        "shop.path_/login.user",
		"path=/login user=joe more=x": "",
		// The first wildcard applies, and not the closest.
		"path=/files/abc/b": "shop.path_/files/*",
		// An asterisk may match nothing.
		"path=/x/a/b":     "shop.path_/*/a*/b",
		"path=/x/y/abc/b": "shop.path_/*/a*/b",
		"path=/x/a":       "shop.path",
		"path=/x/b":       "shop.path",
		// Key and value run into each other.
		"path_/login user=joe": "shop.path_/login.user",
	} {
		m := Find(shop, entries(text))
		assert.Equal(t, path != "", m.Rule != nil, text)
		assert.True(t, m.Rule == nil || m.Rule.Path == path, text)
	}
	way := entries("path=/login user=joe")
	wild := entries("path=/x/y/abc/b")
	assert.Zero(t, testing.AllocsPerRun(100, func() { Find(shop, way); Find(shop, wild) }))
}

func TestRulesAreReadAsWritten(t *testing.T) {
	set := parse(t, shop)
	assert.Len(t, set.domains, 1)
	assert.Equal(t, Rule{
		Path: "shop.path_/login.user", File: "a.yaml", Line: 9, Requests: 7, Unit: Hour, Replaces: []string{"login"},
	}, *set.Rules()[1])
	assert.Equal(t, `shop.path_/login: unit=MINUTE requests_per_unit=5, shadow_mode: false, quota_mode: false
shop.path_/login.user: unit=HOUR requests_per_unit=7, shadow_mode: false, quota_mode: false
shop.path_/login.user_root: unit=UNKNOWN requests_per_unit=0, shadow_mode: false, quota_mode: false
shop.path_/files/*: unit=DAY requests_per_unit=100, shadow_mode: true, quota_mode: false
shop.path_/*/a*/b: unit=DAY requests_per_unit=1, shadow_mode: false, quota_mode: false
shop.path: unit=WEEK requests_per_unit=9, shadow_mode: false, quota_mode: true
`, set.Dump())

	set = parse(t, `
domain: shop
descriptors:
  - {key: a, rate_limit: {limit: ["funnel 100, 10/s", window 1000/h], name: x}}
  - {key: b, rate_limit: {unit: second, requests_per_unit: 5, candidate: "sliding 5/s"}}
`)
	assert.Equal(t, `shop.a: limit=funnel 100, 10/s and window 1000/h, shadow_mode: false, quota_mode: false
shop.b: unit=SECOND requests_per_unit=5, shadow_mode: false, quota_mode: false, candidate: sliding 5/s
`, set.Dump())

	assert.Equal(t, "UNKNOWN", Unit(99).String())
	assert.Zero(t, Unit(0).Length())
	for _, u := range Units {
		assert.Equal(t, u, ParseUnit(u.String()))
		_, err := policy.AlignedWindow(1, u.Length())
		assert.NoError(t, err)
	}
}

// Promise: Each fault names file, line and key, and refuses the directory.
func TestFaultNamesFileLineAndKey(t *testing.T) {
	limit := func(text string) string {
		return "domain: d\ndescriptors:\n  - key: k\n    rate_limit:\n      unit: second\n" + text
	}
	for _, c := range []struct{ text, want string }{
		{"", "a.yaml: domain: a name that is not empty is accepted"},
		{"domain: ''", "a.yaml:1: domain: a name that is not empty is accepted"},
		{"- a", "a.yaml:1: a map is accepted, with the keys domain, descriptors, all_or_nothing"},
		{"domain: d\n\tx: 1", "a.yaml:2: found a tab character that violates indentation"},
		{"domain: d\nratelimit: 1", `a.yaml:2: ratelimit: this key is unknown here, known: domain, descriptors, all_or_nothing`},
		{"domain: d\ndescriptors:\n  - a", "a.yaml:3: descriptors[0]: a map is accepted, with the keys key, value, "},
		{"domain: d\ndescriptors:\n  - key: a\n    value: 1.5", "a.yaml:4: descriptors[0].value: 1.5 is neither text, whole number, true nor false: text goes in quotes"},
		{"domain: d\ndescriptors:\n  - value: a", "a.yaml:3: descriptors[0].key: a name that is not empty is accepted"},
		{"domain: d\ndescriptors:\n  - key: a\n    value: b\n  - key: a_b", `a.yaml:5: descriptors[1]: there are two descriptors "a_b" of d: each pair of key and value may stand once at a level`},
		{"domain: d\ndescriptors:\n  - key: a\n    share_threshold: true", `a.yaml:4: descriptors[0].share_threshold: it is accepted beside a value with *, which "a" has not`},
		{limit("      requests_per_unit: '3'"), `a.yaml:6: descriptors[0].rate_limit.requests_per_unit: "3": a whole number from 0 to 4294967295 is accepted, without quotes`},
		{limit("      unlimited: true"), `a.yaml:5: descriptors[0].rate_limit.unit: "second" is accepted in a rate_limit that is not unlimited`},
		{limit("      name: x\n      replaces: [{name: x}]"), `a.yaml:7: descriptors[0].rate_limit.replaces[0].name: "x" is the name of this rate_limit: another's name is accepted`},
		{limit("      replaces: [{name: ''}]"), "a.yaml:6: descriptors[0].rate_limit.replaces[0].name: the name of another rate_limit is accepted"},
		{limit("      limit: sliding 5/s"), "a.yaml:6: descriptors[0].rate_limit.limit: it is accepted in place of unit, requests_per_unit and unlimited, not beside them"},
		{"domain: d\ndescriptors:\n  - key: k\n    rate_limit:\n      limit: []", "a.yaml:5: descriptors[0].rate_limit.limit: 0 limits: 1 to 8 are accepted"},
		{"domain: d\ndescriptors:\n  - key: k\n    rate_limit:\n      limit:\n        - window 1/h\n        - queue 1, 1/s", `a.yaml:7: descriptors[0].rate_limit.limit[1]: "queue 1, 1/s" delays calls`},
		{limit("      candidate: 5/s"), "a.yaml:6: descriptors[0].rate_limit.candidate: "},
		{limit("      candidate: in flight 10, 1m at most"), `a.yaml:6: descriptors[0].rate_limit.candidate: "in flight 10, 1m at most" counts requests until they end, and Envoy tells this service no end of a request: a limit of units over time is accepted`},
		{"domain: d\ndescriptors:\n  - key: k\n    rate_limit:\n      limit: in flight 10, 1m at most", `a.yaml:5: descriptors[0].rate_limit.limit: "in flight 10, 1m at most" counts requests until they end`},
		{limit("      candidate: queue 5, 1/s"), `a.yaml:6: descriptors[0].rate_limit.candidate: "queue 5, 1/s" delays calls, which this service does not: any other limit is accepted, or a queue 0`},
		{"domain: d\ndescriptors:\n  - key: k\n    rate_limit:\n      unlimited: true\n      candidate: sliding 1/s", "a.yaml:6: descriptors[0].rate_limit.candidate: it is accepted in a rate_limit that is not unlimited"},
		{"domain: d\ndescriptors:\n  - key: k\n    rate_limit:\n      unit: fortnight", `a.yaml:5: descriptors[0].rate_limit.unit: "fortnight" is no unit: second, minute, hour, day, week, month and year are accepted`},
		{"domain: d\ndescriptors:\n  - key: k\n    rate_limit: {}", `a.yaml:4: descriptors[0].rate_limit.unit: "" is no unit: second, minute, hour, day, week, month and year are accepted`},
		{limit("    metadata: [a]"), "a.yaml:6: descriptors[0].metadata: a map is accepted, with any keys"},
		{limit("    metadata: {a: [.inf]}"), "a.yaml:6: descriptors[0].metadata.a[0]: .inf: a finite number is accepted"},
		{"domain: d\nall_or_nothing: 'true'", `a.yaml:2: all_or_nothing: "true": true or false is accepted`},
		{"domain: {}", "a.yaml:1: domain: a text is accepted"},
		{"domain: d\ndescriptors: &d\n  - {key: k, descriptors: *d}", "a.yaml:1: an anchor here has an alias of itself"},
		{"domain: d\ndescriptors:\n  - key: k\n    all_or_nothing: true", `a.yaml:4: descriptors[0].all_or_nothing: this key is unknown here, known: key, value, rate_limit, `},
		// A map that is merged into another.
		{"domain: d\ndescriptors:\n  - &a\n    key: k\n    rate_limit: &l\n      unit: eon\n    value: v\n  - <<: *a\n    value: w",
			`a.yaml:6: descriptors[1].rate_limit.unit: "eon" is no unit`},
	} {
		_, err := Parse(sources(c.text), Options{})
		if assert.Error(t, err, c.text) {
			assert.Contains(t, err.Error(), c.want, c.text)
		}
		var one *configfile.Error
		assert.ErrorAs(t, err, &one)
	}
}

// Anchors, merges and types are read as in the reference.
func TestMergesAndTypes(t *testing.T) {
	const head = "domain: d\ndescriptors:\n"
	for text, want := range map[string]string{
		"  - &a {key: a, rate_limit: {unit: day, requests_per_unit: 5}}\n  - {<<: *a, value: b, rate_limit: {requests_per_unit: 9}}\n": "d.a: unit=DAY requests_per_unit=5, d.a_b: unit=DAY requests_per_unit=9",
		"  - {key: a, rate_limit: {unit: day}, <<: {key: b}}\n":                                                                        "d.b: unit=DAY requests_per_unit=0",
		"  - {<<: [{key: a}, {key: b, value: c}], rate_limit: {unit: day}}\n":                                                          "d.a_c: unit=DAY requests_per_unit=0",
		"  - {key: yes, value: 010, rate_limit: {unit: day, requests_per_unit: 0x10}}\n":                                               "d.yes_010: unit=DAY requests_per_unit=16",
		"  - {key: 2001-01-01, value: ~, rate_limit: {unit: day, requests_per_unit: 1_000}}\n":                                         "d.2001-01-01: unit=DAY requests_per_unit=1000",
		"  - {key: !!binary YQ==, value: !x 1.5, rate_limit: {unlimited: Yes}}\n":                                                      "d.a_1.5: unit=UNKNOWN requests_per_unit=0",
	} {
		set, err := Parse(sources(head+text), Options{})
		if assert.NoError(t, err, text) {
			var all []string
			for _, r := range set.Rules() {
				all = append(all, fmt.Sprintf("%s: unit=%s requests_per_unit=%d", r.Path, r.Unit, r.Requests))
			}
			assert.Equal(t, want, strings.Join(all, ", "))
		}
	}
}

// Promise: `rald check` names parts of Envoy's files without effect.
func TestTextWithoutEffectIsAFault(t *testing.T) {
	const head = "domain: d\ndescriptors:\n  - key: k\n"
	const limit = "    rate_limit: {unit: day}\n"
	for text, want := range map[string]string{
		head + "    value: /*/x*\n" + limit + "  - {key: k, value: /a/x*y, rate_limit: {unit: day}}\n": `a.yaml:6: descriptors[1]: "k_/*/x*" comes first and matches all that this descriptor does: it has no effect`,
		head + limit + "  - {key: k, value: '*'}\n":                                                    `a.yaml:3: descriptors[0]: "k_*" comes first`,
		head + limit + "    descriptors:\n      - key: '*'\n      - key: a*\n":                         `a.yaml:7: descriptors[0].descriptors[1]: "*" comes first`,
		head + "    rate_limit: {unit: day, replaces: [{name: a}]}\n":                                  `a.yaml:4: descriptors[0].rate_limit.replaces[0].name: no rate_limit of d has the name "a": it has no effect`,
		head + "    shadow_mode: true\n":                                                               "a.yaml:4: descriptors[0].shadow_mode: it has no effect: it is accepted with a rate_limit that is not unlimited",
		head + "    quota_mode: yes\n    rate_limit: {unlimited: true}\n":                              "a.yaml:4: descriptors[0].quota_mode: it has no effect",
		head + "    metadata: {a: b}\n":                                                                "a.yaml:4: descriptors[0].metadata: it has no effect",
		head + "    rate_limit: {unlimited: true, name: a}\n":                                          "a.yaml:4: descriptors[0].rate_limit.name: it has no effect",
		head + "    rate_limit: {unlimited: true, requests_per_unit: 1}\n":                             "a.yaml:4: descriptors[0].rate_limit.requests_per_unit: it has no effect",
		"domain: d\nmetadata: {a: b}\n":                                                                "a.yaml:2: metadata: it has no effect",
		"domain: first\n---\ndomain: second\n":                                                         "a.yaml:2: there is a second document after ---, and it has no effect: one is accepted",
		"domain: first\n--- [\n":                                                                       "there is a second document after ---",
		"domain: d\ndomain: e\n":                                                                       "a.yaml:2: domain: this key is there twice, and it has no effect: once is accepted",
		head + limit + "    key: l\n":                                                                  "a.yaml:5: descriptors[0].key: this key is there twice",
		head + "    rate_limit:\n      unit: day\n      unit: hour\n":                                  "a.yaml:6: descriptors[0].rate_limit.unit: this key is there twice",
		head + "    requests_per_unit: 5\n" + limit:                                                    "a.yaml:4: descriptors[0].requests_per_unit: it has no effect: this key is unknown here, known: key, value, rate_limit, descriptors, ",
		head + "    rate_limit:\n      unit: day\n      shadow_mode: true\n":                           "a.yaml:6: descriptors[0].rate_limit.shadow_mode: it has no effect: this key is unknown here, known: unit, ",
		"domain: d\nshadow_mode: true\n":                                                               "a.yaml:2: shadow_mode: it has no effect: this key is unknown here, known: domain, descriptors, all_or_nothing",
		head + "    rate_limit: {unit: day, replaces: [{name: a, unit: day}]}\n  - {key: l, rate_limit: {unit: day, name: a}}\n": "a.yaml:4: descriptors[0].rate_limit.replaces[0].unit: it has no effect: this key is unknown here, known: name",
		head + limit + "  - {key: l, rate_limit: &a {unit: day}, <<: {<<: *a}}\n":                                                "descriptors[1].unit: it has no effect",
		"domain: d\nrate_limit: {unit: day}\ndescriptors: [{key: k, rate_limit: 5}]\n":                                           "a.yaml:2: rate_limit: it has no effect",
	} {
		_, err := Parse(sources(text), Options{})
		assert.ErrorContains(t, err, want, text)
		assert.ErrorIs(t, err, configfile.ErrUnused, text)
	}
	for _, text := range []string{
		"---\ndomain: d\n", "domain: d\n...\n", head + "    value: a*\n" + limit, "domain: d\ndescriptors:\n  - key: k*\n" + limit,
		"domain: d\ndescriptors:\n  - key: k*\n    value: v\n" + limit, head + "    value: a*b\n" + limit + "  - {key: k, value: a*}\n  - {key: k, value: '*b'}\n  - {key: k, value: '*bc'}\n  - {key: k, value: ab}\n",
		head + limit + "    value: a\n  - <<: [{key: k}, {value: b}]\n    value: c\n    <<: {shadow_mode: true, rate_limit: {unit: day}}\n",
	} {
		_, err := Parse(sources(text), Options{})
		assert.NoError(t, err, text)
	}
}

func TestDomainOfTwoFiles(t *testing.T) {
	files := sources("domain: d\ndescriptors: [{key: a, rate_limit: {unit: day}}]", "domain: d\ndescriptors: [{key: b, rate_limit: {unit: day}}]")
	_, err := Parse(files, Options{})
	assert.EqualError(t, err, `b.yaml:1: domain: "d" is the domain of a.yaml too: the rules of a domain are in one file unless domains are merged`)
	set, err := Parse(files, Options{Merge: true})
	require.NoError(t, err)
	_, err = Parse(append(files, Source{"c.yaml", []byte("domain: d\ndescriptors: [{key: '*'}]")}), Options{Merge: true})
	assert.ErrorContains(t, err, `b.yaml:2: descriptors[0]: "*" comes first and matches all`)
	assert.NotNil(t, Find(set.Domain("d"), entries("a=1")).Rule)
	assert.NotNil(t, Find(set.Domain("d"), entries("b=1")).Rule)

	_, err = Parse(sources("domain: d\nall_or_nothing: true", "domain: d\nall_or_nothing: false"), Options{Merge: true})
	assert.EqualError(t, err, "b.yaml:2: all_or_nothing: it is false here and true in a.yaml, which has the same domain: the files of a domain agree on it")
}

// All faults are reported, and any refuses all files. Links are followed, also at the top, and each
// file is read once.
func TestFilesAreFoundBehindLinksOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "mounted")
	write := func(name, text string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	link := func(to, name string) { require.NoError(t, os.Symlink(to, filepath.Join(dir, name))) }
	write("..2026/b.yaml", "domain: b")
	write("..2026/below/c.yml", "domain: c")
	// Kubernetes links files so.
	link("..2026", "..data")
	link("..data/b.yaml", "b.yaml")
	link("..data/below", "below")
	write("README.md", "domain: readme")
	link("README.md", "a.yaml")
	write(".hidden.yaml", "domain: hidden")
	write(".git/d.yaml", "domain: d")
	require.NoError(t, os.Mkdir(filepath.Join(dir, "folder.yaml"), 0o755))
	top := dir + ".link"
	require.NoError(t, os.Symlink(dir, top))
	for _, folder := range []string{dir, top} {
		names, err := Files(folder)
		require.NoError(t, err)
		assert.Equal(t, []string{"a.yaml", "b.yaml", filepath.Join("below", "c.yml")}, names)
		set, err := Read(folder, Options{})
		require.NoError(t, err)
		assert.Len(t, set.domains, 3)
		for _, domain := range []string{"b", "c", "readme"} {
			assert.NotNil(t, set.Domain(domain), domain)
		}
	}

	write("e.yaml", "domain: e\nlimits: 1\nunits: 1")
	write("f.yaml", "domain:")
	_, err := Read(dir, Options{})
	for _, want := range []string{"e.yaml:2: limits", "e.yaml:3: units", "f.yaml:1: domain"} {
		assert.ErrorContains(t, err, want)
	}
	_, err = Read(filepath.Join(dir, "none"), Options{})
	assert.ErrorIs(t, err, os.ErrNotExist)
	_, err = Read(filepath.Join(dir, "README.md"), Options{})
	assert.ErrorIs(t, err, syscall.ENOTDIR)
	link("..", "..2026/below/back")
	_, err = Files(top)
	assert.ErrorContains(t, err, "leads back to "+filepath.Join(dir, "..2026"))
	require.NoError(t, os.Remove(filepath.Join(dir, "below")))
	link("none", "gone.yaml")
	_, err = Files(top)
	assert.ErrorIs(t, err, os.ErrNotExist)
}

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
			assert.True(t, r.Unlimited || r.Limit != nil || r.Unit.Length() > 0, "%s has no limit", r.Path)
		}
		for _, d := range set.domains {
			for _, entries := range [][]entry{nil, {{key, value}}, {{key, value}, {key, value}}} {
				m := Find(d, entries)
				assert.True(t, m.Rule == nil && m.Shared == nil || all[m.Rule])
			}
		}
	})
}
