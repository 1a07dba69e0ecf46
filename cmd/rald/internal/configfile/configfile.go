// Package configfile reads files of configuration. An Error has a fault's file, line and key.
// ReadIn reads a text, and a Reader its values. It is a part of rald and may change in any release.
package configfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/ral-limiter/ral/internal/core/filewatch"
)

// Read returns the text of a file: see filewatch.Read. A fault is an *Error, except for a missing file.
func Read(file string) ([]byte, error) {
	text, err := filewatch.Read(file)
	if err != nil && !errors.As(err, new(*fs.PathError)) {
		err = &Error{File: file, Err: err}
	}
	return text, err
}

// Refused returns the misspelt name of a file, which is not read: with .yml.
func Refused(name string) string { return strings.TrimSuffix(name, ".yaml") + ".yml" }

// ReadIn returns a file's text, nil if missing; a file by its Refused name is then an *Error.
func ReadIn(dir, name string) (file string, text []byte, err error) {
	file = filepath.Join(dir, name)
	text, err = Read(file)
	if !errors.Is(err, fs.ErrNotExist) {
		return file, text, err
	}
	if _, err := os.Stat(dir); err != nil {
		return file, nil, err
	}
	other := Refused(file)
	if _, err := os.Stat(other); err == nil {
		return file, nil, &Error{File: other, Err: fmt.Errorf("this file is not read: the name %s is accepted", name)}
	}
	return file, nil, nil
}

// document returns the top node of a text, nil if there is none or the text is not YAML. A second
// document and a repeated key are faults.
func document(file string, text []byte) (top *yaml.Node, faults []error) {
	var first, second yaml.Node
	later := func(line int) []error {
		return []error{&Error{File: file, Line: line, Err: fmt.Errorf("there is a second document after ---, and %w: one is accepted", ErrUnused)}}
	}
	read := yaml.NewDecoder(bytes.NewReader(text))
	switch err := read.Decode(&first); {
	case errors.Is(err, io.EOF):
		// The file has only comments.
		return nil, nil
	case err != nil:
		// The parser looks ahead: the fault may be after the first document.
		for _, end := range documentEnd.FindAllIndex(text, -1) {
			if yaml.Unmarshal(text[:end[0]], &first) == nil && len(first.Content) > 0 {
				faults = later(lineAt(text, end[0]))
				break
			}
		}
		if faults == nil {
			return nil, []error{unreadable(file, text, err.Error())}
		}
	case !errors.Is(read.Decode(&second), io.EOF):
		faults = later(second.Line)
	}
	if len(first.Content) == 0 {
		return nil, faults
	}
	return first.Content[0], append(faults, repeated(file, "", first.Content[0])...)
}

func repeated(file, path string, node *yaml.Node) (faults []error) {
	seen := map[string]bool{}
	for i, value := range node.Content {
		here := fmt.Sprintf("%s[%d]", path, i)
		if node.Kind == yaml.MappingNode {
			if i%2 == 0 {
				continue
			}
			key := node.Content[i-1]
			here = strings.TrimPrefix(path+"."+key.Value, ".")
			if seen[key.Value] {
				faults = append(faults, &Error{
					File: file, Line: key.Line, Key: here, Err: fmt.Errorf("this key is there twice, and %w: once is accepted", ErrUnused),
				})
			}
			// The merge key may repeat, and so may keys that are maps or aliases.
			seen[key.Value] = key.Kind == yaml.ScalarNode && key.ShortTag() != "!!merge"
		}
		faults = append(faults, repeated(file, here, value)...)
	}
	return faults
}

// documentEnd comes after the end of a document.
var documentEnd = regexp.MustCompile(`(?m)^(---|\.\.\.|%)`)

var (
	lineOf   = regexp.MustCompile(`^line (\d+): `)
	anchorOf = regexp.MustCompile(`^unknown anchor '([^']*)'`)
	// firstLine begins a fault of the first line: the parser omits its number.
	firstLine = regexp.MustCompile(`^(found|did not find|could not find|mapping|block|while) `)
)

// unreadable returns the Error for a YAML parser's error, with the line if known.
func unreadable(file string, text []byte, wrong string) *Error {
	if line := notUTF8(text); line > 0 {
		return &Error{File: file, Line: line, Err: errors.New("this is not UTF-8, which alone is accepted")}
	}
	wrong = strings.TrimPrefix(wrong, "yaml: ")
	fault := &Error{File: file}
	if line := lineOf.FindStringSubmatch(wrong); line != nil {
		fault.Line, _ = strconv.Atoi(line[1])
		wrong = wrong[len(line[0]):]
	} else if anchor := anchorOf.FindStringSubmatch(wrong); anchor != nil {
		fault.Line = lineAt(text, bytes.Index(text, []byte("*"+anchor[1])))
	} else if strings.HasPrefix(wrong, "control characters") {
		fault.Line = lineAt(text, bytes.IndexFunc(text, isControl))
	} else if firstLine.MatchString(wrong) {
		fault.Line = 1
	}
	fault.Err = errors.New(wrong)
	return fault
}

func notUTF8(text []byte) int {
	for i := 0; i < len(text); {
		char, n := utf8.DecodeRune(text[i:])
		if char == utf8.RuneError && n == 1 {
			return lineAt(text, i)
		}
		i += n
	}
	return 0
}

func isControl(char rune) bool {
	return unicode.IsControl(char) && !strings.ContainsRune("\t\n\r\u0085", char)
}

func lineAt(text []byte, i int) int {
	if i < 0 {
		return 0
	}
	return 1 + bytes.Count(text[:i], []byte("\n"))
}
