package inspect

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Package encoding/json replaces invalid text by U+FFFD, ignores the case of names, and keeps the
// last of two values. Each of these could change the wrong key.

// readStrictly reads a JSON object into a struct. Names are the fields', in their case and unique. An
// error names the field, its value and what is accepted.
func readStrictly(body []byte, to any) error {
	if !utf8.Valid(body) || !pairsSurrogates(body) {
		return errors.New("it is not valid UTF-8, or has half of a surrogate pair")
	}
	if err := json.Unmarshal(body, new(any)); err != nil {
		return fmt.Errorf("it is not one JSON value: %w", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	if begin, _ := decoder.Token(); begin != json.Delim('{') {
		return fmt.Errorf("it is %.40s, want an object", body)
	}
	fields := map[string]any{}
	for _, field := range reflect.VisibleFields(reflect.TypeOf(to).Elem()) {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" {
			fields[name] = reflect.ValueOf(to).Elem().FieldByIndex(field.Index).Addr().Interface()
		}
	}
	names := slices.Sorted(maps.Keys(fields))
	for decoder.More() {
		// The body is valid.
		token, _ := decoder.Token()
		name, _ := token.(string)
		var value json.RawMessage
		_ = decoder.Decode(&value)
		field := fields[name]
		if field == nil {
			return fmt.Errorf("the name %.40q is unknown or given twice, want each of %s once at most", name, strings.Join(names, ", "))
		}
		delete(fields, name)
		if json.Unmarshal(value, field) != nil {
			want := "text in quotes"
			if _, ok := field.(*int64); ok {
				want = "a whole number, such as 5 or -5"
			}
			return fmt.Errorf("%s is %.40s, want %s", name, value, want)
		}
	}
	return nil
}

// pairsSurrogates reports whether each \u escape of a surrogate is part of a pair.
func pairsSurrogates(body []byte) bool {
	text := string(body)
	for {
		backslash := strings.IndexByte(text, '\\')
		if backslash < 0 || backslash+2 > len(text) {
			return true
		}
		text = text[backslash:]
		char, ok := escaped(text)
		switch {
		case !ok:
			text = text[2:]
		case !utf16.IsSurrogate(char):
			text = text[6:]
		default:
			low, _ := escaped(text[6:])
			if utf16.DecodeRune(char, low) == utf8.RuneError {
				return false
			}
			text = text[12:]
		}
	}
}

func escaped(text string) (char rune, ok bool) {
	if len(text) < 6 || text[:2] != `\u` {
		return 0, false
	}
	n, err := strconv.ParseUint(text[2:6], 16, 16)
	return rune(n), err == nil
}
