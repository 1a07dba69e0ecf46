package accesslog

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/internal/testkit/must"
)

const (
	nginxLine  = `192.0.2.1 - ann [29/Nov/2026:06:37:01 +0100] "GET /a?b HTTP/1.1" 200 612 "-" "curl/8"`
	apacheLine = `192.0.2.1 ident - [29/Nov/2026:06:37:01 +0100] "GET /\"a\" HTTP/1.1" 429 - "http://x/" "an \"agent\""`
	caddyLine  = `{"level":"info","ts":1795930621.5,"logger":"http.log.access","request":{"client_ip":"192.0.2.1","uri":"/a","headers":{"X-Plan":["gold"]}},"duration":0.25,"status":200,"user_id":""}`
	envoyLine  = `{"start_time":"2026-11-29T05:37:01.250Z","duration":1500,"response_code":429,"downstream_remote_address":"[2001:db8::1]:4711","path":"/a"}`
)

var second = time.Date(2026, 11, 29, 5, 37, 1, 0, time.UTC).UnixNano()

type read struct {
	key, plan string
	entry     Entry
}

// all reads a text to its end.
func all(t *testing.T, c Config, text string) (entries []read, r *Reader, err error) {
	t.Helper()
	if len(c.Key) == 0 {
		c.Key = []string{"addr"}
	}
	r, err = NewReader(c, strings.NewReader(text), "-")
	if err != nil {
		return nil, nil, err
	}
	for {
		var e Entry
		if err := r.Next(&e); errors.Is(err, io.EOF) {
			return entries, r, nil
		} else if err != nil {
			return entries, r, err
		}
		one := read{key: string(e.Key), plan: string(e.Plan), entry: e}
		one.entry.Key, one.entry.Plan = nil, nil
		entries = append(entries, one)
	}
}

// Promise: `ral replay` reads the logs of nginx, Apache, Caddy and Envoy without a flag, and knows when each request began.
func TestFormsAreRecognized(t *testing.T) {
	for name, c := range map[string]struct {
		line, form, key string
		want            Entry
	}{
		"nginx":  {nginxLine, "combined", "192.0.2.1", Entry{Arrival: second, IsWhole: true, Status: 200, Cost: 1}},
		"apache": {apacheLine, "combined", "192.0.2.1", Entry{Arrival: second, IsWhole: true, Status: 429, Cost: 1}},
		"main":   {nginxLine + ` "203.0.113.7"`, "main", "192.0.2.1", Entry{Arrival: second, IsWhole: true, Status: 200, Cost: 1}},
		"common": {nginxLine[:strings.Index(nginxLine, ` "-"`)], "common", "192.0.2.1", Entry{Arrival: second, IsWhole: true, Status: 200, Cost: 1}},
		"caddy":  {caddyLine, "caddy", "192.0.2.1", Entry{Arrival: 1795930621_250000000, Duration: 250 * time.Millisecond, Status: 200, Cost: 1}},
		"envoy":  {envoyLine, "envoy", "2001:db8::1", Entry{Arrival: second + 250e6, Duration: 1500 * time.Millisecond, Status: 429, Cost: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			entries, r, err := all(t, Config{}, "\n"+c.line+"\r\n"+c.line)
			require.NoError(t, err)
			assert.Equal(t, []read{{c.key, "", c.want}, {c.key, "", c.want}}, entries)
			assert.Equal(t, c.form, r.Form)
			assert.Empty(t, r.Unreadable)
			assert.EqualValues(t, 3, r.Lines)
		})
	}
}

func TestFieldsAreChosenByName(t *testing.T) {
	for name, c := range map[string]struct {
		config Config
		text   string
		want   read
	}{
		"log_format": {Config{Format: `$msec|${request_time}|$http_x_plan|$arg_units|$http_x_key`, Key: []string{"http_x_key"}, Plan: "http_x_plan", Cost: "arg_units"},
			"1795930621.500|0.250|gold|7|me\n", read{"me", "gold", Entry{Arrival: second + 250e6, Duration: 250e6, Cost: 7}}},
		"two fields are one key": {Config{Key: []string{"addr", "user"}}, nginxLine, read{"192.0.2.1 ann", "", Entry{Arrival: second, IsWhole: true, Status: 200, Cost: 1}}},
		"an inner field": {Config{Key: []string{"request.uri"}, Plan: "request.headers.X-Plan"}, caddyLine,
			read{"/a", `["gold"]`, Entry{Arrival: 1795930621_250000000, Duration: 250e6, Status: 200, Cost: 1}}},
		"json": {Config{Time: "at", Duration: "took", Unit: time.Microsecond, Key: []string{"id"}, Cost: "n"},
			`{"at":"2026-11-29T06:37:01.5+01:00","took":250000,"id":12,"n":0}`, read{"12", "", Entry{Arrival: second + 250e6, Duration: 250e6}}},
		"csv": {Config{Form: "csv", Time: "at", Key: []string{"id"}, Status: "code", AtStart: true, Duration: "took"},
			"\ufeffat,took,id,code\n1795930621000,2,\"a,\"\"b\"\"\",503\n", read{`a,"b"`, "", Entry{Arrival: second, Duration: 2e9, IsWhole: true, Status: 503, Cost: 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			entries, r, err := all(t, c.config, c.text)
			require.NoError(t, err)
			assert.Equal(t, []read{c.want}, entries)
			assert.Empty(t, r.Unreadable)
		})
	}
}

// Promise: `ral replay` counts each unreadable line by kind, with the place of the first, and reads on.
func TestUnreadableLinesAreCounted(t *testing.T) {
	format := `$time $cost $took $key`
	text := strings.Join([]string{
		"1795930621 1 0 me",
		"1795930621",
		"yesterday 1 0 me",
		"1795930621 -1 0 me",
		"1795930621 1 - me",
		"1795930621 1 soon me",
		"1795930621 1 0 ",
		"1795930621 1 0 " + strings.Repeat("k", 1025),
		"17959306 1 0 me",
		"1795930621 1 0 " + strings.Repeat("k", 70_000),
		"99999999999999999 1 0 me",
		"\x00\xff\x1b 1 0 me",
		"1795930621 1 0 me",
	}, "\n")
	entries, r, err := all(t, Config{Format: format, Time: "time", Cost: "cost", Duration: "took", Key: []string{"key"}}, text)
	require.NoError(t, err)
	assert.Len(t, entries, 3)
	assert.Equal(t, []Unreadable{
		{otherForm, 1, "-:2"}, {noTime, 2, "-:3"}, {noCost, 1, "-:4"}, {noDuration, 1, "-:6"}, {noKey, 1, "-:7"},
		{keyTooLong, 1, "-:8"}, {outOfRange, 2, "-:9"}, {tooLong, 1, "-:10"},
	}, r.Unreadable)
	assert.EqualValues(t, 13, r.Lines)
}

func TestRecordsAreRead(t *testing.T) {
	entries, r, err := all(t, Config{}, "ral 1795930621000000007 start 0 0 0 start\nral 1795930621250000000 take 429 3 17 k1\n"+
		"ral 1795930621250000001 charge 200 5 0 \"a b\"\nral 1795930621250000001 jump 200 5 0 k\nral 1795930621250000001 take 200 -1 0 k\n")
	require.NoError(t, err)
	assert.Equal(t, "ral", r.Form)
	assert.Equal(t, []read{
		{"start", "", Entry{Arrival: second + 7, Verb: Start}},
		{"k1", "", Entry{Arrival: second + 250e6, Status: 429, Cost: 3, Verb: Take, Grant: 17}},
		{`"a b"`, "", Entry{Arrival: second + 250e6 + 1, Status: 200, Cost: 5, Verb: Charge}},
	}, entries)
	assert.Equal(t, []Unreadable{{otherForm, 1, "-:4"}, {noCost, 1, "-:5"}}, r.Unreadable)
}

func TestFilesAreReadInTurn(t *testing.T) {
	dir := t.TempDir()
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err := w.Write([]byte(nginxLine + "\n" + nginxLine + "\n"))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	plain, zipped, broken := filepath.Join(dir, "a"), filepath.Join(dir, "b.gz"), filepath.Join(dir, "c.gz")
	require.NoError(t, os.WriteFile(plain, []byte(apacheLine), 0o600))
	require.NoError(t, os.WriteFile(zipped, packed.Bytes(), 0o600))
	require.NoError(t, os.WriteFile(broken, packed.Bytes()[:packed.Len()-6], 0o600))

	r, err := NewReader(Config{Key: []string{"addr"}}, strings.NewReader(nginxLine), plain, zipped, broken, "-")
	require.NoError(t, err)
	n := 0
	for e := (Entry{}); r.Next(&e) == nil; {
		n++
	}
	assert.Equal(t, 1+2+2+1, n)
	assert.Empty(t, r.Unreadable)
	assert.Equal(t, []Broken{{broken, 2, "the file is truncated, or other bytes follow its end"}}, r.Broken)

	require.NoError(t, os.WriteFile(broken, []byte("\x1f\x8b"), 0o600))
	r, err = NewReader(Config{Key: []string{"addr"}}, nil, broken, plain, filepath.Join(dir, "none"))
	require.NoError(t, err)
	require.NoError(t, r.Next(&Entry{}))
	assert.ErrorIs(t, r.Next(&Entry{}), os.ErrNotExist)
	assert.Equal(t, []Broken{{broken, 0, "the file is truncated, or other bytes follow its end"}}, r.Broken)

	closed := must.Get(os.Open(plain))
	require.NoError(t, closed.Close())
	for name, want := range map[string]error{"-": os.ErrClosed, dir: syscall.EISDIR} {
		r, err = NewReader(Config{Key: []string{"addr"}}, closed, name)
		require.NoError(t, err)
		assert.ErrorIs(t, r.Next(&Entry{}), want)
	}
}

func writeFile(t *testing.T, path, text string) string {
	t.Helper()
	if strings.HasSuffix(path, ".gz") {
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		_, err := io.WriteString(w, text)
		require.NoError(t, errors.Join(err, w.Close()))
		text = packed.String()
	}
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// Promise: `ral replay` reads rotated logs in the order of their times, whatever the order of their names, and says if it cannot.
func TestOldestFileIsReadFirst(t *testing.T) {
	dir := t.TempDir()
	line := func(day int) string {
		return fmt.Sprintf("192.0.2.%d - - [%02d/Nov/2026:06:37:01 +0000] \"GET / HTTP/1.1\" 200 1 \"-\" \"-\"\n", day, day)
	}
	path := func(name, text string) string { return writeFile(t, filepath.Join(dir, name), text) }
	newest, empty, middle, oldest := path("access.log", "garbage\n"+line(20)+line(21)), path("access.log.0", ""), path("access.log.1", line(19)), path("access.log.10.gz", line(3)+line(18))
	r, err := NewReader(Config{Key: []string{"addr"}}, nil, newest, empty, middle, oldest)
	require.NoError(t, err)
	var keys []string
	var e Entry
	for err = r.Next(&e); err == nil; err = r.Next(&e) {
		keys = append(keys, strings.TrimPrefix(string(e.Key), "192.0.2."))
	}
	require.ErrorIs(t, err, io.EOF)
	assert.Equal(t, []string{"3", "18", "19", "20", "21"}, keys)
	assert.Equal(t, []string{oldest, middle, newest, empty}, r.Files)

	r, err = NewReader(Config{Key: []string{"addr"}}, strings.NewReader(line(20)+line(21)), "-", oldest)
	require.NoError(t, err)
	require.NoError(t, errors.Join(r.Next(&e), r.Next(&e)))
	assert.ErrorContains(t, r.Next(&e), oldest+" begins at 2026-11-03T06:37:01Z, and the file in front of it has 2026-11-20T06:37:01Z to 2026-11-21T06:37:01Z: want files")
	r, err = NewReader(Config{Key: []string{"addr"}}, nil, path("server1", line(3)+line(4)), path("server2", line(3)+line(5)))
	require.NoError(t, err)
	require.NoError(t, errors.Join(r.Next(&e), r.Next(&e)))
	assert.ErrorContains(t, r.Next(&e), "and the logs of several servers merged by time")

	// Each file of a record begins with the epoch of the engine.
	record := func(second int) string {
		return fmt.Sprintf("ral 1795930621000000007 start 0 0 0 start\nral %d000000000 take 200 1 0 k%d\n", second, second)
	}
	r, err = NewReader(Config{Key: []string{"addr"}}, nil, path("record", record(1795930629)), path("record.1", record(1795930625)))
	require.NoError(t, err)
	require.NoError(t, errors.Join(r.Next(&e), r.Next(&e)))
	assert.Equal(t, "k1795930625", string(e.Key))
}

func TestBeginningOfAFileIsNoKey(t *testing.T) {
	dir := t.TempDir()
	for form, lines := range map[string]string{"": nginxLine + "\n", "csv": "addr,at\n192.0.2.1,1795930621\n"} {
		a, b := writeFile(t, filepath.Join(dir, "a"), "\ufeff"+lines), writeFile(t, filepath.Join(dir, "b"), "\ufeff"+lines+"\n")
		c := Config{Form: form, Key: []string{"addr"}}
		if form == "csv" {
			c.Time = "at"
		}
		r, err := NewReader(c, nil, a, b)
		require.NoError(t, err)
		for range 2 {
			var e Entry
			require.NoError(t, r.Next(&e))
			assert.Equal(t, "192.0.2.1", string(e.Key))
		}
		assert.ErrorIs(t, r.Next(&Entry{}), io.EOF)
		assert.Empty(t, r.Unreadable, "the names of the columns stand in each file")
	}
}

// Promise: A field that a server writes as -, since the request has none, is no key and no plan of `ral replay`.
func TestAbsentFieldIsNoKey(t *testing.T) {
	c := Config{Format: `$msec "$http_x_key" $http_x_plan`, Key: []string{"http_x_key"}, Plan: "http_x_plan"}
	entries, r, err := all(t, c, "1795930621 \"-\" gold\n1795930621 \"--\" -\n")
	require.NoError(t, err)
	assert.Equal(t, []read{{"--", "", Entry{Arrival: second, IsWhole: true, Cost: 1}}}, entries)
	assert.Equal(t, []Unreadable{{noKey, 1, "-:1"}}, r.Unreadable)
	entries, r, err = all(t, Config{Key: []string{"user"}}, nginxLine+"\n"+apacheLine)
	require.NoError(t, err)
	assert.Len(t, entries, 1)
	assert.Equal(t, []Unreadable{{noKey, 1, "-:2"}}, r.Unreadable)
}

func TestCopyOfAFileIsAnError(t *testing.T) {
	dir := t.TempDir()
	line := func(second int) string {
		return fmt.Sprintf("192.0.2.1 - - [03/Nov/2026:06:37:%02d +0000] \"GET / HTTP/1.1\" 200 1 \"-\" \"-\"\n", second)
	}
	read := func(second string) error {
		r, err := NewReader(Config{Key: []string{"addr"}}, nil, writeFile(t, filepath.Join(dir, "a"), line(3)+line(4)), writeFile(t, filepath.Join(dir, "b.gz"), second))
		for e := (Entry{}); err == nil; {
			err = r.Next(&e)
		}
		return err
	}
	assert.ErrorContains(t, read(line(3)+line(4)), "b.gz begins at 2026-11-03T06:37:03Z, and the file in front of it has 2026-11-03T06:37:03Z to 2026-11-03T06:37:04Z: want files")
	assert.ErrorIs(t, read(line(4)+line(5)), io.EOF, "a second is in both files")

	brief := writeFile(t, filepath.Join(dir, "brief"), line(3)+line(3))
	again := writeFile(t, filepath.Join(dir, "again"), line(3)+line(3))
	more := writeFile(t, filepath.Join(dir, "more"), line(3)+line(3)+line(3))
	for _, copied := range []string{brief, again} {
		_, err := NewReader(Config{Key: []string{"addr"}}, nil, brief, copied)
		assert.ErrorContains(t, err, brief+" and "+copied+" have the same bytes: want each log once")
	}
	_, err := NewReader(Config{Key: []string{"addr"}}, nil, brief, more)
	assert.NoError(t, err, "a second is in both files")
}

// Promise: `ral replay` names a packed file that is truncated or damaged, and how many lines of it were read.
func TestBrokenFilesAreNamed(t *testing.T) {
	path := writeFile(t, filepath.Join(t.TempDir(), "a.gz"), strings.Repeat(nginxLine+"\n", 3))
	packed := must.Get(os.ReadFile(path))
	for cause, text := range map[string][]byte{
		"the file is truncated, or other bytes follow its end":             packed[:len(packed)-1],
		"the file is truncated, or other bytes follow its end, such as \n": append(slices.Clone(packed), '\n'),
		"the file is damaged (gzip: invalid checksum)":                     append(slices.Clone(packed[:len(packed)-8]), "12345678"...),
		"the file is damaged (gzip: invalid header)":                       append(slices.Clone(packed), "garbage at its end"...),
	} {
		require.NoError(t, os.WriteFile(path, text, 0o600))
		r, err := NewReader(Config{Key: []string{"addr"}}, nil, path)
		require.NoError(t, err)
		for range 3 {
			require.NoError(t, r.Next(&Entry{}))
		}
		assert.ErrorIs(t, r.Next(&Entry{}), io.EOF)
		cause, _, _ = strings.Cut(cause, ", such as")
		assert.Equal(t, []Broken{{path, 3, cause}}, r.Broken)
	}
}

func TestSettingsThatDoNotSuitAreErrors(t *testing.T) {
	for want, c := range map[string]struct {
		config Config
		text   string
	}{
		"--form is \"xml\", want ral, combined": {Config{Form: "xml"}, nginxLine},
		"both set":                              {Config{Form: "csv", Format: "$a"}, nginxLine},
		"--cost: the log_format has no variable $units: it is":                                {Config{Key: []string{"addr"}, Cost: "units"}, nginxLine},
		"--key: the log_format has no variable $http_x_key: it is $remote_addr $remote_ident": {Config{Key: []string{"http_x_key"}}, nginxLine},
		"has no variables":   {Config{Format: "%h %l"}, nginxLine},
		"nothing between $a": {Config{Format: "$a$b", Time: "a"}, nginxLine},
		"--key: there is no column \"id\", want one of [\"at\" \"key\"]": {Config{Form: "csv", Time: "at", Key: []string{"id"}}, "at,key\n"},
		"no list of names": {Config{Form: "csv", Time: "at"}, "\"at\n"},
		"--time is empty":  {Config{}, `{"a":1}`},
		"-: no line is in a known form: give --form or --log-format, and unpack files that gzip did not pack (lines read: 100)": {Config{}, strings.Repeat("hello\n", 200)},
		"-: no line is in a known form: give --form or --log-format, and unpack files that gzip did not pack (lines read: 1)":   {Config{}, "hello\n"},
		"--key is \"a,,b\", want the names of fields": {Config{Key: []string{"a", "", "b"}}, nginxLine},
	} {
		_, _, err := all(t, c.config, c.text)
		assert.ErrorContains(t, err, want)
	}
}

func TestStampsAreReadInEachForm(t *testing.T) {
	for text, want := range map[string]int64{
		"29/Nov/2026:06:37:01 +0100": second, "29/Nov/2026:00:07:01 -0530": second, "2026-11-29T05:37:01Z": second,
		"1795930621": second, "1795930621.25": second + 250e6, "1795930621250": second + 250e6, "1795930621250125": second + 250125e3,
		"1795930621250125007": second + 250125007, "1.795930621e9": second, "29/Feb/2028:00:00:00 +0000": time.Date(2028, 2, 29, 0, 0, 0, 0, time.UTC).UnixNano(),
	} {
		got, _, ok := new(stamps).read([]byte(text))
		assert.True(t, ok, text)
		assert.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "-", "x", "-1", "1e30", "NaN", "29/Nox/2026:06:37:01 +0100", "29/Nov/2026:06:37:01 x0100", "29/Nov/2026 06:37:01 +0100",
		"32/Nov/2026:06:37:01 +0100", "29/Nov/2026:24:37:01 +0100", "2026-13-29T05:37:01Z", "9223372036854775807", "29/Nov/0001:06:37:01 +0100",
		"30/Feb/2026:06:37:01 +0100", "29/Feb/2027:06:37:01 +0100", "31/Apr/2026:06:37:01 +0100", "2026-02-30T05:37:01Z"} {
		_, _, ok := new(stamps).read([]byte(text))
		assert.False(t, ok, text)
	}
	var s stamps
	for day := time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC); day.Year() < 2110; day = day.AddDate(0, 0, 1) {
		got, _, ok := s.read([]byte(day.Format("02/Jan/2006:15:04:05 -0700")))
		require.True(t, ok)
		require.Equal(t, day.UnixNano(), got, day)
	}
}

// Promise: `ral replay` reads a line of text without an allocation.
func TestLinesOfTextAllocateNothing(t *testing.T) {
	r, err := NewReader(Config{Key: []string{"addr", "user"}}, strings.NewReader(strings.Repeat(nginxLine+"\n", 2_000)), "-")
	require.NoError(t, err)
	var e Entry
	require.NoError(t, r.Next(&e))
	assert.Zero(t, testing.AllocsPerRun(1_000, func() { err = errors.Join(err, r.Next(&e)) }))
	require.NoError(t, err)
}

func FuzzReader(f *testing.F) {
	for _, line := range []string{nginxLine, apacheLine, caddyLine, envoyLine, "a,b\n1,\"2\"\"\"", "\x1f\x8b\x08"} {
		f.Add([]byte(line+"\n"+line), uint8(0))
	}
	f.Fuzz(func(t *testing.T, text []byte, which uint8) {
		configs := []Config{
			{}, {Form: "combined"}, {Form: "caddy"}, {Form: "envoy"}, {Form: "json", Time: "ts", Cost: "n"}, {Form: "csv", Time: "a", Duration: "b"},
			{Format: string(text[:min(len(text), 40)]), Time: "msec"}, {Format: "$time_iso8601 $request_time $addr", Unit: time.Nanosecond},
		}
		c := configs[int(which)%len(configs)]
		c.Key = []string{"addr"}
		r, err := NewReader(c, bytes.NewReader(text), "-")
		if err != nil {
			return
		}
		var entries, unreadable int64
		for e := (Entry{}); r.Next(&e) == nil; entries++ {
			if e.Arrival > latest || e.Cost < 0 || e.Duration < 0 || len(e.Key) == 0 || len(e.Key) > maxKey {
				t.Fatalf("%+v", e)
			}
		}
		for _, u := range r.Unreadable {
			unreadable += u.Lines
		}
		if broken := int64(1); entries+unreadable > r.Lines+broken {
			t.Fatalf("%d entries and %d unreadable lines of %d", entries, unreadable, r.Lines)
		}
	})
}

func BenchmarkCombined(b *testing.B) {
	text := strings.Repeat(nginxLine+"\n", 100_000)
	b.SetBytes(int64(len(nginxLine) + 1))
	b.ReportAllocs()
	for n := 0; n < b.N; {
		r, err := NewReader(Config{Key: []string{"addr"}}, strings.NewReader(text), "-")
		require.NoError(b, err)
		for e := (Entry{}); n < b.N && r.Next(&e) == nil; n++ {
		}
	}
}
