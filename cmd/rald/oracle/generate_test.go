package oracle

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"github.com/ral-limiter/ral/cmd/rald/internal/rules"
)

// generator writes random configurations and requests. keys and values are short, so that requests
// meet rules and rules meet each other.
type generator struct {
	*rand.Rand
	keys, values []string
	// wild is the share of files with something strange in them, in percent.
	wild int
	// quota is the share of rules in quota mode, in percent. The reference of go.mod is older than its
	// rule for quotas, and than wildcards within a value, metadata and negative hits.
	quota int

	// domain is the domain of the file that is being written.
	domain string
	// suffix is the suffix of all domains.
	suffix string
	// ways has the ways to all descriptors that were written.
	ways []way
}

type way struct {
	domain  string
	entries [][2]string
}

func (g *generator) pick(from ...string) string { return from[g.IntN(len(from))] }
func (g *generator) percent(n int) bool         { return g.IntN(100) < n }

func (g *generator) files() []rules.Source {
	files := []rules.Source{{Name: "a.yaml", Text: []byte(g.file("one"))}}
	if g.percent(25) {
		files = append(files, rules.Source{Name: "b.yaml", Text: []byte(g.file(g.pick("one", "two", "two")))})
	}
	return files
}

func (g *generator) file(domain string) string {
	domain += g.suffix
	g.domain = domain
	text := "domain: " + domain + "\ndescriptors:\n" + g.descriptors("  ", 3, nil)
	if !g.percent(g.wild) {
		return text
	}
	for range 1 + g.IntN(2) {
		text = g.spoil(text)
	}
	return text
}

func (g *generator) descriptors(indent string, depth int, before [][2]string) string {
	var text strings.Builder
	met := map[string]bool{}
	for range 1 + g.IntN(4) {
		key, value := g.pick(g.keys...), ""
		if g.percent(60) && (!strings.HasSuffix(key, "*") || g.percent(g.wild/20)) {
			value = g.pick(g.values...)
		}
		path := key + "_" + value
		if value == "" {
			path = key
		}
		if met[path] && !g.percent(g.wild) {
			continue
		}
		met[path] = true
		here := append(slices.Clone(before), [2]string{key, value})
		g.ways = append(g.ways, way{g.domain, here})
		fmt.Fprintf(&text, "%s- key: %q\n", indent, key)
		inner := indent + "  "
		if value != "" {
			fmt.Fprintf(&text, "%svalue: %q\n", inner, value)
		}
		if g.percent(70) {
			text.WriteString(g.rateLimit(inner))
		}
		for _, flag := range []struct {
			name  string
			often int
		}{{"shadow_mode", 10}, {"quota_mode", g.quota}, {"detailed_metric", 20}, {"value_to_metric", 20}} {
			if g.percent(flag.often) {
				fmt.Fprintf(&text, "%s%s: %s\n", inner, flag.name, g.pick("true", "true", "true", "false"))
			}
		}
		if strings.HasSuffix(path, "*") && g.percent(50) || g.percent(g.wild/20) {
			fmt.Fprintf(&text, "%sshare_threshold: true\n", inner)
		}
		if depth > 1 && g.percent(40) {
			fmt.Fprintf(&text, "%sdescriptors:\n%s", inner, g.descriptors(inner+"  ", depth-1, here))
		}
	}
	return text.String()
}

func (g *generator) rateLimit(indent string) string {
	text := indent + "rate_limit:\n"
	name := ""
	if g.percent(40) {
		name = g.pick("x", "y", "z")
		text += indent + "  name: " + name + "\n"
	}
	if g.percent(12) {
		text += indent + "  unlimited: true\n"
	} else {
		text += fmt.Sprintf("%s  unit: %s\n%s  requests_per_unit: %d\n", indent, g.unit(), indent, g.requests())
	}
	if g.percent(25) {
		other := g.pick("x", "y", "z")
		if other != name || g.percent(g.wild) {
			text += indent + "  replaces:\n" + indent + "    - name: " + other + "\n"
		}
	}
	return text
}

func (g *generator) unit() string {
	return g.pick("second", "minute", "hour", "day", "week", "month", "year", "SECOND", "Minute")
}

func (g *generator) requests() uint32 {
	switch g.IntN(10) {
	case 0:
		return 0
	case 1:
		return g.Uint32N(1 << 29)
	}
	return 1 + g.Uint32N(12)
}

// spoil replaces or adds a line, so that most files are refused for some reason.
func (g *generator) spoil(text string) string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	index := g.IntN(len(lines))
	line := lines[index]
	indent := line[:len(line)-len(strings.TrimLeft(line, " -"))]
	indent = strings.ReplaceAll(indent, "-", " ")
	scalar := g.pick("3", "-1", "1.5", "1e3", "0x10", "0b11", "0o7", "017", "1_000", "4294967295", "4294967296", "9223372036854775807",
		"9223372036854775808", "yes", "no", "on", "~", "null", "", "true", "false", "'3'", "\"x\"", "2020-01-01", "2020-01-01T00:00:00Z",
		".inf", ".nan", "!!str 3", "!!int 3", "!!float 3", "!!binary aGk=", "!!binary '*'", "!custom x", "foo", "'b*c'", "'**'", "second", "ſecond", "unknown",
		"12:30:45", "a: b", "[a]", "[]", "{}", "[[]]", "[{}]", "{key: a}", "*x", "&y 3", "| \n  x", "'", "\"\\q\"", "é", "\t", "@", "`", "%", "=", "<<",
		"{<<: {key: a}}", "{1: 2}", "{? [a] : b}", "- a", "3 # comment", "+3", "--3", "0.0", "1.0", "Second ")
	key := g.pick("domain", "key", "value", "descriptors", "rate_limit", "unit", "requests_per_unit", "unlimited", "name", "replaces",
		"shadow_mode", "quota_mode", "detailed_metric", "value_to_metric", "share_threshold",
		"limits", "Key", "requests_per_units", "1", "true", "~", "1.5", "\"key\"", "? key", "<<", "[a]")
	switch g.IntN(9) {
	// The line gets another value.
	case 0, 1, 2:
		if i := strings.Index(line, ":"); i >= 0 {
			lines[index] = line[:i+1] + " " + scalar
		}
	// The line gets a further key.
	case 3, 4:
		lines[index] = line + "\n" + indent + key + ": " + scalar
	// The line gets another key.
	case 5:
		if i := strings.Index(line, ":"); i >= 0 {
			lines[index] = line[:len(line)-len(strings.TrimLeft(line, " -"))] + key + line[i:]
		}
	// The line is left out.
	case 6:
		lines = append(lines[:index], lines[index+1:]...)
	// Something comes between two lines.
	case 7:
		lines[index] = line + "\n" + g.pick("---", "...", "# comment", "\t", "  ", "%YAML 1.1", "? x", "- x", ":", "&a", "!!map", "\x00", "\xff", "\ufeff", "\u0085")
	// The text is cut.
	case 8:
		cut := []rune(strings.Join(lines, "\n"))
		return string(cut[:g.IntN(len(cut)+1)])
	}
	return strings.Join(lines, "\n") + "\n"
}

// descriptor returns a descriptor that leads to a rule, or nearly so, and its domain.
func (g *generator) descriptor(values []string) (domain string, d *common.RateLimitDescriptor) {
	w := g.ways[g.IntN(len(g.ways))]
	d = &common.RateLimitDescriptor{}
	add := func(key, value string) {
		d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: key, Value: value})
	}
	for _, e := range w.entries {
		key, value := e[0], e[1]
		switch {
		case g.percent(5):
			key = g.pick(g.keys...)
		case value == "" || g.percent(10):
			value = g.pick(values...)
		case strings.HasSuffix(value, "*") && g.percent(90):
			value = strings.TrimSuffix(value, "*") + g.pick("", "x", "y", "*")
		}
		add(key, value)
	}
	switch g.IntN(30) {
	case 0:
		add(g.pick(g.keys...), g.pick(values...))
	case 1:
		d.Entries = d.Entries[1:]
	case 2:
		w.domain = "two" + g.suffix
	}
	return w.domain, d
}
