package limitfile

import (
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/core/filewatch"
	"github.com/ral-limiter/ral/internal/core/penalty"
	"github.com/ral-limiter/ral/internal/core/warn"
	"github.com/ral-limiter/ral/policy"
)

const (
	// maxName is the longest name of a limit or plan, in bytes.
	maxName = 64
	// maxFaults is the number of faults after which the rest of a file is not read. A further fault says so.
	maxFaults = 1000
)

// Limit is a limit of a file with its settings. Read makes it.
type Limit struct {
	Name string
	// Policy is the limit of each key without a plan of its own.
	Policy policy.Policy
	// Per is a note for people that says what a key is, such as "user".
	Per string
	// Plans has the limits for the keys of each plan, in the order of the file.
	Plans []NamedLimit
	// Candidate is a limit that is tried on the keys without a plan, without effect. It is nil if there is none.
	Candidate policy.Policy
	// Shadow reports whether refused calls pass nevertheless.
	Shadow bool
	// WarnAt is engine.Config.WarnAt.
	WarnAt []float64
	// Penalty is engine.Config.Penalty.
	Penalty engine.Penalty
	// Shares are the guarantees of tenants that share the Policy, in the order of the file, and Ceilings
	// bound the units that tenants borrow: see the function Shares. Reserved is the part of the Policy out of
	// which guarantees come. If it is nil, that part is the sum of the guarantees.
	Shares, Ceilings []NamedLimit
	Reserved         policy.Policy

	file string
	// settings are by their keys. The key of the limit itself is "".
	settings map[string]setting
	// held has the texts of limits that could not follow the file, by setting. Copies of the Limit have it too.
	held *held
}

// held has texts of limits by setting.
type held struct {
	sync.Mutex
	texts map[string]string
}

func (h *held) put(texts map[string]string) {
	h.Lock()
	defer h.Unlock()
	h.texts = texts
}

// setting is a setting as the file has it.
type setting struct {
	line  int
	value string
	// limit is the limit of a plan or tenant, or nil.
	limit policy.Policy
}

// NamedLimit is the limit of the keys of a plan, or a limit of a tenant.
type NamedLimit struct {
	Name   string
	Policy policy.Policy
}

// Fault is a fault of a file. Its text is a line with all fields.
type Fault struct {
	File string
	// Line counts from 1. It is 0 for a fault of the whole file.
	Line int
	// Key is the limit's name and the setting, such as "per-user: candidate". It is "" if the fault
	// belongs to no limit.
	Key string
	Err error
}

// Error returns a line with the place and Err.
func (f *Fault) Error() string {
	text := f.File
	if f.Line > 0 {
		text += ":" + strconv.Itoa(f.Line)
	}
	if f.Key != "" {
		text += ": " + f.Key
	}
	return text + ": " + f.Err.Error()
}

// Unwrap returns Err.
func (f *Fault) Unwrap() error { return f.Err }

// fault returns a fault of a setting of the limit.
func (l *Limit) fault(key, format string, args ...any) *Fault {
	return &Fault{File: l.file, Line: l.settings[key].line, Key: keyOf(l.Name, key), Err: fmt.Errorf(format, args...)}
}

// Fault returns a fault of a setting, with the file and the line. If setting is "", it is a fault of the limit itself.
func (l *Limit) Fault(setting string, err error) *Fault {
	return l.fault(setting, "%w", fieldFault(err))
}

func keyOf(name, key string) string {
	if key == "" {
		return name
	}
	return name + ": " + key
}

// Read reads a file once. The error joins a *[Fault] for each fault, up to 1,000. An empty file has
// no limits.
func Read(path string) ([]Limit, error) {
	text, err := filewatch.Read(path)
	if err != nil {
		return nil, errors.Join(&Fault{File: path, Err: err})
	}
	return parse(path, text)
}

// parse reads the text of a file. file is its name, and the error is as for Read.
func parse(file string, text []byte) ([]Limit, error) {
	return Parse(file, func(yield func(int, string) bool) {
		number := 0
		for line := range strings.SplitSeq(strings.TrimPrefix(string(text), "\ufeff"), "\n") {
			if number++; !yield(number, strings.TrimSuffix(line, "\r")) {
				return
			}
		}
	})
}

// readers read the value of a setting, by the setting's key.
var readers = map[string]func(limit *Limit, value string) error{
	"per":     func(limit *Limit, value string) error { limit.Per = value; return nil },
	candidate: func(limit *Limit, value string) (err error) { limit.Candidate, err = policy.Parse(value); return err },
	"shadow":  readShadow,
	"penalty": readPenalty,
	"warn-at": readWarnAt,
	reserved:  func(limit *Limit, value string) (err error) { limit.Reserved, err = policy.Parse(value); return err },
}

// lists have the limits with names of a limit, by the beginning of their settings.
var lists = map[string]func(limit *Limit) *[]NamedLimit{
	planPrefix:    func(limit *Limit) *[]NamedLimit { return &limit.Plans },
	sharePrefix:   func(limit *Limit) *[]NamedLimit { return &limit.Shares },
	ceilingPrefix: func(limit *Limit) *[]NamedLimit { return &limit.Ceilings },
}

const (
	candidate     = "candidate"
	reserved      = "reserved"
	planPrefix    = "plan "
	sharePrefix   = "share "
	ceilingPrefix = "ceiling "

	wantLimit   = `a line such as "per-user: funnel 100, 10/s" is accepted`
	wantSetting = `a setting is "plan NAME", "per", "candidate", "shadow", "penalty", "warn-at", "share NAME", "ceiling NAME" or "reserved", such as "shadow: yes"`
)

// parser reads a file line by line.
type parser struct {
	file   string
	line   int
	limits []Limit
	// lines has the number of the line of each limit, by name.
	lines map[string]int
	// current is the limit whose settings follow. It is nil before the first limit. A limit with a
	// fault is current too, so that the faults of its settings are found.
	current *Limit
	faults  []error
}

// Parse is Read for limits that are kept in another form than a file. lines yields each line with its number. A
// fault has the number of its line, and numbers may repeat.
func Parse(file string, lines iter.Seq2[int, string]) ([]Limit, error) {
	p := &parser{file: file, lines: map[string]int{}}
	for number, line := range lines {
		p.line = number
		if p.read(line); len(p.faults) > maxFaults {
			break
		}
	}
	p.checkShares()
	if len(p.faults) > 0 {
		return nil, errors.Join(p.faults...)
	}
	return p.limits, nil
}

func (p *parser) fault(key, format string, args ...any) {
	p.add(&Fault{File: p.file, Line: p.line, Key: key, Err: fmt.Errorf(format, args...)})
}

// add adds a fault. After maxFaults it adds a last fault, which says that there may be more.
func (p *parser) add(fault error) {
	if len(p.faults) == maxFaults {
		fault = &Fault{File: p.file, Line: p.line, Err: errors.New("there may be more faults")}
	}
	if len(p.faults) <= maxFaults {
		p.faults = append(p.faults, fault)
	}
}

func (p *parser) read(line string) {
	if !utf8.ValidString(line) || strings.ContainsFunc(line, func(char rune) bool { return unicode.IsControl(char) && char != '\t' }) {
		p.fault("", "a line of UTF-8 without control characters is accepted")
		return
	}
	indented := line != strings.TrimLeft(line, " \t")
	line = strings.TrimSpace(withoutComment(line))
	if line == "" {
		return
	}
	key, value, ok := strings.Cut(line, ":")
	key, value = strings.Join(strings.Fields(key), " "), strings.TrimSpace(value)
	switch {
	case indented && p.current == nil:
		p.fault("", "an indented line is a setting of the limit above, and there is none: %s, not indented", wantLimit)
	case indented && !ok:
		p.fault(p.current.Name, "%.80q has no colon: %s", line, wantSetting)
	case indented:
		p.setting(key, value)
	case !ok:
		p.fault("", "%.80q has no colon: %s", line, wantLimit)
	default:
		p.limit(key, value)
	}
}

// withoutComment cuts a line at a # that is at its beginning or after a space or tab.
func withoutComment(line string) string {
	for i := range len(line) {
		if line[i] == '#' && (i == 0 || line[i-1] == ' ' || line[i-1] == '\t') {
			return line[:i]
		}
	}
	return line
}

func (p *parser) limit(name, value string) {
	p.checkShares()
	p.limits = append(p.limits, Limit{
		Name: name, file: p.file, settings: map[string]setting{"": {line: p.line, value: value}}, held: new(held),
	})
	p.current = &p.limits[len(p.limits)-1]
	before, isTwice := p.lines[name]
	switch {
	case readers[name] != nil || listOf(name) != nil:
		p.fault("", "%.80q is a setting: indent it below its limit", name)
		return
	case !isName(name):
		p.current.Name = fmt.Sprintf("%.80q", name)
		p.fault(p.current.Name, "a name has 1 to %d letters, digits, dots, dashes and underscores", maxName)
		return
	case isTwice:
		p.fault(name, "line %d has a limit of this name: another name is accepted", before)
	}
	p.lines[name] = p.line
	var err error
	if p.current.Policy, err = policy.Parse(value); err != nil {
		p.fault(name, "%w", err)
	}
}

func (p *parser) setting(key, value string) {
	l := p.current
	place := keyOf(l.Name, fmt.Sprintf("%.80s", key))
	if before := l.settings[key].line; before > 0 {
		p.fault(place, "line %d has this setting: each is accepted once", before)
		// Other faults of the setting are found.
		l = &Limit{settings: map[string]setting{}}
	}
	read := readers[key]
	if list, name := listOf(key), nameIn(key); list != nil && isName(name) {
		read = func(l *Limit, value string) error {
			limit, err := policy.Parse(value)
			*list(l) = append(*list(l), NamedLimit{name, limit})
			l.settings[key] = setting{p.line, value, limit}
			return err
		}
	}
	if read == nil {
		p.fault(place, wantSetting)
		return
	}
	l.settings[key] = setting{line: p.line, value: value}
	if err := read(l, value); err != nil {
		p.fault(place, "%w", err)
	}
}

// listOf returns the list with the limit of a key, or nil.
func listOf(key string) func(*Limit) *[]NamedLimit {
	return lists[strings.TrimSuffix(key, nameIn(key))]
}

// nameIn returns the name in a key such as "plan gold".
func nameIn(key string) string {
	_, name, _ := strings.Cut(key, " ")
	return name
}

func isName(name string) bool {
	for _, char := range []byte(name) {
		switch {
		case 'a' <= char && char <= 'z', 'A' <= char && char <= 'Z', '0' <= char && char <= '9', char == '.', char == '_', char == '-':
		default:
			return false
		}
	}
	return name != "" && len(name) <= maxName
}

func readShadow(limit *Limit, value string) error {
	if limit.Shadow = value == "yes"; !limit.Shadow && value != "no" {
		return fmt.Errorf("%.80q is given: yes or no is accepted", value)
	}
	return nil
}

func readWarnAt(limit *Limit, value string) error {
	for text := range strings.SplitSeq(value, ",") {
		share, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		if err != nil {
			return fmt.Errorf("%.80q is given: shares such as 0.8, 0.95 are accepted", value)
		}
		limit.WarnAt = append(limit.WarnAt, share)
	}
	if n := len(limit.WarnAt); n > warn.MaxShares {
		return fmt.Errorf("%d shares are given: at most %d are accepted", n, warn.MaxShares)
	}
	return fieldFault(warn.Shares(limit.WarnAt).Check("", "a share"))
}

func readPenalty(limit *Limit, value string) error {
	parts := strings.Split(value, ",")
	count, within, ok := strings.Cut(parts[0], " in ")
	refusals, err := strconv.ParseInt(strings.TrimSpace(count), 10, 32)
	rule := penalty.Rule{Refusals: refusals}
	ok = ok && err == nil && readTime(within, &rule.Within)
	times := map[string]*time.Duration{"block ": &rule.For, "at most ": &rule.Max, "forget ": &rule.Forget}
	for _, part := range parts[1:] {
		known := false
		for prefix, to := range times {
			if text, has := strings.CutPrefix(strings.TrimSpace(part), prefix); has {
				known = *to == 0 && readTime(text, to)
			}
		}
		ok = ok && known
	}
	if !ok || rule.For == 0 {
		return fmt.Errorf(`%.80q is given: refusals, and times without a fraction of a nanosecond, are accepted, as in "5 in 1m, block 10m" or "5 in 1m, block 10m, at most 1h, forget 2h"`, value)
	}
	rule.FillIn()
	limit.Penalty = engine.Penalty{Refusals: int(rule.Refusals), Within: rule.Within, For: rule.For, Max: rule.Max, Forget: rule.Forget}
	return fieldFault(rule.Check(""))
}

// readTime reads a time in the notation of policy.Parse, which has days, unlike time.ParseDuration.
func readTime(text string, to *time.Duration) bool {
	text = strings.TrimSpace(text)
	limit, err := policy.Parse("window 1/" + text)
	if err != nil || !unicode.IsDigit(rune(text[0])) || strings.ContainsAny(text, " \t_") {
		return false
	}
	*to = limit.(policy.Windowed).Window()
	return *to > 0
}

// fileWords has the words of a file for those of Go in a *policy.FieldError.
var fileWords = strings.NewReplacer(
	"Penalty.Refusals", "the number of refusals", "Penalty.Within", `the time after "in"`, "Penalty.Forget", `the time after "forget"`,
	"Penalty.For", `the time after "block"`, "Penalty.Max", `the time after "at most"`,
	"For, which", `that after "block", which`, ", or 0 for For", "", "Within, which", `that after "in", which`, ", or 0 for the longer of Max and Within", "",
	"Total", "the limit", "Reserved", "what is reserved", "Guarantee(Tenants", "the share",
	"Policy is", "the limit is", "policy is", "the limit is", "policy.Funnel", "funnel", "policy.InFlight if", "limit in flight if", "h0m0s", "h", "m0s", "m",
)

// fieldFault returns an error that says of a *policy.FieldError in the words of a file what is given and
// what is accepted. The error of nil is nil.
func fieldFault(err error) error {
	var field *policy.FieldError
	if errors.As(err, &field) {
		name, _, _ := strings.Cut(field.Field, "[")
		return errors.New(fileWords.Replace(fmt.Sprintf("%s is %v, want %s", name, field.Value, field.Want)))
	}
	return err
}

// isShared reports whether tenants share the limit.
func (l *Limit) isShared() bool { return l.Reserved != nil || len(l.Shares)+len(l.Ceilings) > 0 }

// byTenant yields sharePrefix with the Shares, and then ceilingPrefix with the Ceilings.
func (l *Limit) byTenant() iter.Seq2[string, []NamedLimit] {
	return func(yield func(string, []NamedLimit) bool) {
		if yield(sharePrefix, l.Shares) {
			yield(ceilingPrefix, l.Ceilings)
		}
	}
}

// SharesConfig returns the shares that the limit describes, and the texts of their limits in force for Share, for other
// shares than those of the function Shares. present returns the limit as the file has it when a tenant gets an entry.
func (l *Limit) SharesConfig(present func() *Limit) (config engine.SharesConfig[string], inForce map[string]string) {
	limitsOf := func(prefix string) func(string) policy.Policy {
		return func(tenant string) policy.Policy { return present().settings[prefix+tenant].limit }
	}
	config = engine.SharesConfig[string]{Total: l.Policy, Reserved: l.Reserved, Ceiling: limitsOf(ceilingPrefix)}
	config.Config.Name, inForce = l.Name, map[string]string{}
	for prefix, shares := range l.byTenant() {
		for _, share := range shares {
			inForce[prefix+share.Name] = share.Policy.String()
		}
	}
	for _, share := range l.Shares {
		config.Tenants = append(config.Tenants, share.Name)
	}
	if len(config.Tenants) > 0 || l.Reserved != nil {
		config.Guarantee = limitsOf(sharePrefix)
	}
	return config, inForce
}

// newShares returns the shares of SharesConfig in process. The error is a *Fault.
func (l *Limit) newShares(config engine.SharesConfig[string]) (*engine.Shares[string], error) {
	shares, err := engine.NewShares(config)
	if err == nil {
		return shares, nil
	}
	var field *policy.FieldError
	if !errors.As(err, &field) {
		return nil, err
	}
	key, index := "", 0
	if _, err := fmt.Sscanf(field.Field, "Guarantee(Tenants[%d])", &index); err == nil && index < len(l.Shares) {
		key = sharePrefix + l.Shares[index].Name
	} else if field.Field == "Reserved" && l.Reserved != nil {
		key = reserved
	}
	return nil, l.fault(key, "%w", fieldFault(err))
}

// checkShares adds the faults of the current limit's shares. The limit must have all its settings.
func (p *parser) checkShares() {
	limit := p.current
	if limit == nil || !limit.isShared() || limit.Policy == nil {
		return
	}
	for _, key := range []string{candidate, "shadow", "warn-at", "penalty"} {
		if limit.settings[key].line > 0 {
			p.add(limit.fault(key, "a limit with shares has no such setting"))
		}
	}
	for _, plan := range limit.Plans {
		p.add(limit.fault(planPrefix+plan.Name, "a limit with shares has no plans: \"share %s\" is accepted", plan.Name))
	}
	for _, shares := range limit.byTenant() {
		for _, share := range shares {
			if share.Policy == nil {
				return // the parser has added a fault for this
			}
		}
	}
	config, _ := limit.SharesConfig(func() *Limit { return limit })
	config.Ceiling = nil // for faults with their places
	shares, err := limit.newShares(config)
	if err != nil {
		p.add(err)
		return
	}
	for _, ceiling := range limit.Ceilings {
		if err := shares.SetCeiling(ceiling.Name, ceiling.Policy); err != nil {
			p.add(limit.fault(ceilingPrefix+ceiling.Name, "%w", fieldFault(err)))
		}
	}
}
