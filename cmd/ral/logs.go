package main

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"

	"github.com/charmbracelet/x/term"

	"github.com/ral-limiter/ral/cmd/ral/internal/accesslog"
	"github.com/ral-limiter/ral/cmd/ral/internal/replay"
	"github.com/ral-limiter/ral/cmd/ral/internal/report"
)

// logs has the settings that the commands about logs share, and the log's reading.
type logs struct {
	log      accesslog.Config
	key      string
	statuses string
	maxKeys  int
	window   time.Duration
	json     bool
	page     string
	showKeys bool
	progress bool
	files    []string

	secret []byte
	source source
}

// source says what was read.
type source struct {
	accesslog.Summary
	HasDurations bool `json:"has_durations"`
	Interrupted  bool `json:"interrupted"`
}

func (l *logs) flags(command string, problems io.Writer) *flag.FlagSet {
	flags := newFlags(command, problems)
	flags.StringVar(&l.key, "key", "addr", "the `fields` that are the key, separated by commas: addr, user, or the log's own names")
	flags.StringVar(&l.log.Form, "form", "", "the log's `form`: ral, combined, main, common, caddy, envoy, json or csv; default by the first line")
	accept(flags, &l.log.Format, "log-format", "the `log_format` of nginx that wrote the log", "variables, such as '$remote_addr [$time_local] \"$request\" $status'", filled)
	flags.StringVar(&l.log.Time, "time", "", "the `field` with the time; default by the form, as for the other fields")
	flags.StringVar(&l.log.Duration, "duration", "", "the `field` with a request's duration")
	accept(flags, &l.log.Unit, "duration-unit", "the `unit` of durations: s, ms, us or ns; default by the form", "s, ms, us or ns", func(text string) (time.Duration, error) {
		unit := map[string]time.Duration{"s": time.Second, "ms": time.Millisecond, "us": time.Microsecond, "ns": 1}[strings.TrimPrefix(text, "1")]
		if unit == 0 {
			return 0, errRange
		}
		return unit, nil
	})
	flags.BoolVar(&l.log.AtStart, "time-is-start", false, "the time is a request's beginning, and not its end")
	flags.StringVar(&l.log.Status, "status", "", "the `field` with the response's status")
	flags.StringVar(&l.log.Cost, "cost", "", "the `field` with a request's cost in units; default 1 unit a request")
	flags.StringVar(&l.statuses, "refused-status", "429", "the `statuses` by which the log tells refusals, separated by commas")
	l.maxKeys, l.window = 1_000_000, time.Minute
	accept(flags, &l.maxKeys, "max-keys", "the `number` of keys that are known at once, at most; default 1000000", "1 or more", strconv.Atoi)
	accept(flags, &l.window, "window", "the `time` before its line at which a request may have begun; default 1m", "a time of 1s to 24h, such as 90s", time.ParseDuration)
	flags.BoolVar(&l.json, "json", false, "write JSON")
	accept(flags, &l.page, "html", "write a web page to the `file`, too", "the name of a file", func(text string) (string, error) {
		if text == "-" {
			return "", errRange
		}
		return filled(text)
	})
	flags.BoolVar(&l.showKeys, "show-keys", false, "show keys, and not hashes that differ from run to run")
	terminal, ok := problems.(*os.File)
	flags.BoolVar(&l.progress, "progress", ok && term.IsTerminal(terminal.Fd()), "show the progress; default in a terminal")
	return flags
}

var errRange = errors.New("the value is out of range")

// filled returns a text, or an error if it is empty.
func filled(text string) (string, error) {
	if text == "" {
		return "", errRange
	}
	return text, nil
}

// accept adds a flag whose errors say which values are accepted.
func accept[T any](flags *flag.FlagSet, to *T, name, usage, want string, parse func(text string) (T, error)) {
	flags.Func(name, usage, func(text string) error {
		value, err := parse(text)
		if err != nil {
			return errors.New("want " + want)
		}
		*to = value
		return nil
	})
}

// parse reads the flags and files, and checks the files.
func (l *logs) parse(flags *flag.FlagSet, args []string) (err error) {
	if l.files, err = parseArgs(flags, args); err != nil {
		return err
	}
	if len(l.files) == 0 {
		flags.Usage()
		return errors.New("there is no log: want the names of files, or - for standard input")
	}
	l.log.Key = strings.Split(l.key, ",")
	l.secret = make([]byte, sha256.Size)
	// Read never fails.
	rand.Read(l.secret)
	return l.checkPage()
}

// pageBegin is the beginning of each web page that a report writes.
const pageBegin = "<!DOCTYPE html>"

// checkPage returns an error if the web page cannot be written, or would overwrite a log or another file that is no web page.
func (l *logs) checkPage() error {
	if l.page == "" {
		return nil
	}
	page, err := os.Stat(l.page)
	if err == nil && !page.Mode().IsRegular() && !page.IsDir() {
		return nil
	}
	_, missing := os.Lstat(l.page)
	file, err := os.OpenFile(l.page, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("--html: %w", err)
	}
	defer file.Close()
	if missing != nil {
		return os.Remove(l.page)
	}
	for _, name := range l.files {
		if name == "-" {
			name = "/dev/stdin"
		}
		if log, err := os.Stat(name); err == nil && os.SameFile(log, page) {
			return fmt.Errorf("--html is %q, which is a log that is read: want another file, for the page", l.page)
		}
	}
	begin := make([]byte, len(pageBegin))
	if n, _ := io.ReadFull(file, begin); n > 0 && string(begin) != pageBegin {
		return fmt.Errorf("--html is %q, which exists and is no web page: want another file, for the page", l.page)
	}
	return nil
}

const linesBetweenLooks = 1 << 14 // at the clock and the context

// replay replays the log, with the limits and gauges of the configuration.
func (l *logs) replay(ctx context.Context, config replay.Config, stdin io.Reader, problems io.Writer) (*replay.Result, error) {
	for _, text := range strings.Split(l.statuses, ",") {
		status, err := strconv.Atoi(text)
		if err != nil || status < 100 || status > 999 {
			return nil, fmt.Errorf("--refused-status is %.40q, want statuses such as 429,503", l.statuses)
		}
		config.Statuses = append(config.Statuses, status)
	}
	config.HasCost, config.MaxKeys, config.Window = l.log.Cost != "", l.maxKeys, l.window
	run, err := replay.New(config)
	if err != nil {
		return nil, err
	}
	if err := l.read(ctx, stdin, problems, run.Add); err != nil {
		return nil, err
	}
	result := run.Result()
	if result.Requests == 0 {
		return nil, errors.New(strings.Join(append([]string{"the log has no request that can be replayed: " + l.source.lead()}, notesOf("unread", &l.source)...), "\n"))
	}
	return result, nil
}

// read calls add with each entry, until the end or until the context ends.
func (l *logs) read(ctx context.Context, stdin io.Reader, problems io.Writer, add func(*accesslog.Entry)) error {
	reader, err := accesslog.NewReader(l.log, stdin, l.files...)
	if err != nil {
		return err
	}
	var entry accesslog.Entry
	began, shown := time.Now(), time.Now()
	for n := 1; ; n++ {
		if err = reader.Next(&entry); err != nil {
			break
		}
		l.source.HasDurations = l.source.HasDurations || entry.Duration > 0 || entry.Verb == accesslog.End || entry.Verb == accesslog.Release
		add(&entry)
		if n%linesBetweenLooks > 0 {
			continue
		}
		if l.source.Interrupted = ctx.Err() != nil; l.source.Interrupted {
			break
		}
		if now := time.Now(); l.progress && now.Sub(shown) > time.Second/2 {
			shown = now
			name, read, size := reader.Progress()
			fmt.Fprintf(problems, "\r%s: %s, %d lines, %.0f a second\x1b[K", report.Printable(name), part(read, size), reader.Lines, float64(reader.Lines)/now.Sub(began).Seconds())
		}
	}
	if l.progress {
		fmt.Fprint(problems, "\r\x1b[K")
	}
	l.source.Summary = reader.Summary
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return err
}

// name returns a key as it is shown.
func (l *logs) name(key string) string {
	if l.showKeys {
		return key
	}
	mac := hmac.New(sha256.New, l.secret)
	mac.Write([]byte(key))
	return "#" + hex.EncodeToString(mac.Sum(nil)[:6])
}

// write writes a result as JSON or as text, and then the page.
func (l *logs) write(out io.Writer, result any, report *report.Report) error {
	if err := l.show(out, result, report); err != nil || l.page == "" {
		return err
	}
	file, err := os.OpenFile(l.page, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(report.Page(file), file.Close())
}

// show writes JSON with escapes for characters that a terminal might take for a command, which are all inside of strings.
func (l *logs) show(out io.Writer, result any, report *report.Report) error {
	if !l.json {
		return report.Text(out)
	}
	text, err := json.MarshalIndent(result, "", "  ")
	if err != nil {
		return err
	}
	var builder strings.Builder
	for _, char := range string(text) {
		if unicode.IsPrint(char) || char == '\n' {
			builder.WriteRune(char)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, char) {
			fmt.Fprintf(&builder, `\u%04x`, unit)
		}
	}
	_, err = io.WriteString(out, builder.String()+"\n")
	return err
}

// lead says what was read.
func (s *source) lead() string {
	return fmt.Sprintf("%s: %s, %s", report.Printable(strings.Join(s.Files, ", ")), many(s.Lines, "line"), cmp.Or(s.Form, "of no form"))
}

// part returns a share as a percentage.
func part(n, all int64) string {
	if all == 0 {
		return "0%"
	}
	return fmt.Sprintf("%.3g%%", 100*float64(n)/float64(all))
}
