package inspect

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxText bounds the bytes of a key's text in an answer. The row of the key has an ID.
const maxText = 256

type textForm[K comparable] struct {
	format func(K) string
	parse  func(string) (K, error)
}

var errText = errors.New("this is not the text of a key")

// textOf returns the default text form of a type: see Limit.Format. struct{} has one too, the empty
// text.
func textOf[K comparable]() (form textForm[K], ok bool) {
	kind := reflect.TypeFor[K]()
	if kind.Kind() == reflect.Interface {
		return form, false
	}
	var none K
	_, marshals := any(none).(encoding.TextMarshaler)
	_, unmarshals := any(&none).(encoding.TextUnmarshaler)
	if marshals && unmarshals {
		return textForm[K]{formatMarshaler[K], parseUnmarshaler[K]}, true
	}
	if kind == reflect.TypeFor[struct{}]() {
		return textForm[K]{func(K) string { return "" }, func(text string) (K, error) {
			if text != "" {
				return none, errText
			}
			return none, nil
		}}, true
	}
	switch kind.Kind() {
	case reflect.String:
		return textForm[K]{
			func(key K) string { return quote(reflect.ValueOf(key).String()) },
			func(text string) (key K, err error) {
				s, err := unquote(text)
				reflect.ValueOf(&key).Elem().SetString(s)
				return key, err
			},
		}, true
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return textForm[K]{formatNumber[K], parseNumber[K]}, true
	}
	return form, false
}

func formatMarshaler[K comparable](key K) string {
	text, err := any(key).(encoding.TextMarshaler).MarshalText()
	if err != nil {
		return fmt.Sprintf("%+q", fmt.Sprint(key))
	}
	return quote(string(text))
}

func parseUnmarshaler[K comparable](text string) (key K, err error) {
	plain, err := unquote(text)
	if err == nil && any(&key).(encoding.TextUnmarshaler).UnmarshalText([]byte(plain)) != nil {
		// The key's own error names functions.
		err = errText
	}
	return key, err
}

// formatNumber goes by the kind: a derived type may have its own String.
func formatNumber[K comparable](key K) string {
	if reflect.TypeFor[K]().Kind() == reflect.Bool {
		return fmt.Sprintf("%t", any(key))
	}
	return fmt.Sprintf("%d", any(key))
}

func parseNumber[K comparable](text string) (key K, err error) {
	value := reflect.ValueOf(&key).Elem()
	switch {
	case value.CanInt():
		n, err := strconv.ParseInt(text, 10, value.Type().Bits())
		value.SetInt(n)
		return key, notNumber(err)
	case value.CanUint():
		n, err := strconv.ParseUint(text, 10, value.Type().Bits())
		value.SetUint(n)
		return key, notNumber(err)
	}
	b, err := strconv.ParseBool(text)
	value.SetBool(b)
	if err != nil {
		err = fmt.Errorf("%w: want true or false", errText)
	}
	return key, err
}

func notNumber(err error) error {
	switch {
	case errors.Is(err, strconv.ErrRange):
		return fmt.Errorf("%w: the number is out of range", errText)
	case err != nil:
		return fmt.Errorf("%w: want a whole number", errText)
	}
	return nil
}

// quote returns a string as a line of printable text. It quotes as in Go characters that do not
// print, invalid UTF-8, a leading quote or outer spaces. Different strings have different texts.
func quote(text string) string {
	plain := utf8.ValidString(text) && !strings.HasPrefix(text, `"`) && strings.TrimSpace(text) == text
	for _, char := range text {
		plain = plain && strconv.IsPrint(char)
	}
	if plain {
		return text
	}
	return strconv.Quote(text)
}

func unquote(text string) (string, error) {
	if !strings.HasPrefix(text, `"`) {
		return text, nil
	}
	s, err := strconv.Unquote(text)
	if err != nil {
		return "", fmt.Errorf("%w: it begins with a quote, and does not end as a quoted text", errText)
	}
	return s, nil
}

func shorten(text string) string {
	if len(text) <= maxText {
		return text
	}
	end := maxText
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "..."
}
