package pagejson

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEachFieldIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../../docs/operating.md")
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(text), "### As JSON\n")
	section, _, _ = strings.Cut(section, "\n### ")
	seen := map[reflect.Type]bool{}
	var check func(of reflect.Type)
	check = func(of reflect.Type) {
		for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
			of = of.Elem()
		}
		if of.Kind() != reflect.Struct || of.PkgPath() != reflect.TypeFor[Overview]().PkgPath() || seen[of] {
			return
		}
		seen[of] = true
		for _, field := range reflect.VisibleFields(of) {
			if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" {
				assert.Contains(t, section, "`"+name+"`", "%v.%s", of, field.Name)
			}
			check(field.Type)
		}
	}
	for _, of := range []any{Overview{}, List{}, ChangeRequest{}, Explanation{}} {
		check(reflect.TypeOf(of))
	}
	assert.Len(t, seen, 13)
}
