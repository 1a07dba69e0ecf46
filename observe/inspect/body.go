package inspect

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Package encoding/json replaces invalid text by U+FFFD, ignores the case of names, and keeps the
// last of two values. Each of these could change the wrong key.

// readStrictly reads a JSON object into a struct. Names are the fields', in their case and unique.
func readStrictly(body []byte, to any) error {
	if !utf8.Valid(body) || !pairsSurrogates(body) {
		return errors.New("it is not valid UTF-8, or has half of a surrogate pair")
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("it has more than one value")
	}
	d = json.NewDecoder(bytes.NewReader(body))
	if begin, err := d.Token(); err != nil || begin != json.Delim('{') {
		return errors.New("want an object")
	}
	known := namesOf(reflect.TypeOf(to).Elem())
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return err
		}
		name, _ := token.(string)
		if !known[name] {
			return fmt.Errorf("the name %.40q is unknown or given twice", name)
		}
		known[name] = false
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return err
		}
	}
	return nil
}

func namesOf(of reflect.Type) map[string]bool {
	names := map[string]bool{}
	for _, field := range reflect.VisibleFields(of) {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" {
			names[name] = true
		}
	}
	return names
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
		r, ok := escaped(text)
		switch {
		case !ok:
			text = text[2:]
		case !utf16.IsSurrogate(r):
			text = text[6:]
		default:
			low, _ := escaped(text[6:])
			if utf16.DecodeRune(r, low) == utf8.RuneError {
				return false
			}
			text = text[12:]
		}
	}
}

func escaped(text string) (r rune, ok bool) {
	if len(text) < 6 || text[:2] != `\u` {
		return 0, false
	}
	n, err := strconv.ParseUint(text[2:6], 16, 16)
	return rune(n), err == nil
}
