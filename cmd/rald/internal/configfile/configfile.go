// Package configfile reads files of configuration, and says what is wrong with their YAML.
package configfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/ral-limiter/ral/cmd/rald/internal/fault"
)

// MostBytes is the most bytes of a file.
const MostBytes = 16 << 20

// Read returns the text of a file. Links are followed. Anything other than a regular file of up to
// MostBytes is a *fault.Error. If there is no file the error is fs.ErrNotExist.
func Read(file string) ([]byte, error) {
	// A pipe would block when it is opened.
	info, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		if _, other := os.Lstat(file); other == nil {
			return nil, &fault.Error{File: file, Err: errors.New("this link leads to no file")}
		}
	}
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &fault.Error{File: file, Err: errors.New("it is no regular file, which alone is accepted")}
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, MostBytes+1))
	if err == nil && len(text) > MostBytes {
		err = &fault.Error{File: file, Err: fmt.Errorf("it has more than %d MiB, the most that is accepted", MostBytes>>20)}
	}
	if err != nil {
		return nil, err
	}
	return text, nil
}

// Document returns the top node of the text of a file, or nil if there is none or the text is not
// YAML. A second document, and a key that a map has twice, are faults.
func Document(file string, text []byte) (top *yaml.Node, faults []error) {
	var first, second yaml.Node
	read := yaml.NewDecoder(bytes.NewReader(text))
	if err := read.Decode(&first); errors.Is(err, io.EOF) {
		return nil, nil // nothing but comments
	} else if err != nil {
		return nil, Unreadable(file, text, err.Error())
	}
	if err := read.Decode(&second); !errors.Is(err, io.EOF) {
		faults = []error{&fault.Error{
			File: file, Line: second.Line, Err: fmt.Errorf("there is a second document after ---, and %w: one is accepted", fault.ErrUnused),
		}}
	}
	if len(first.Content) == 0 {
		return nil, faults
	}
	return first.Content[0], append(faults, repeated(file, "", first.Content[0])...)
}

// repeated returns a fault for each key that a map of the node has already, whose path is that.
func repeated(file, path string, n *yaml.Node) (faults []error) {
	seen := map[string]bool{}
	for i, value := range n.Content {
		here := fmt.Sprintf("%s[%d]", path, i)
		if n.Kind == yaml.MappingNode {
			if i%2 == 0 {
				continue
			}
			key := n.Content[i-1]
			here = strings.TrimPrefix(path+"."+key.Value, ".")
			if seen[key.Value] {
				faults = append(faults, &fault.Error{
					File: file, Line: key.Line, Key: here, Err: fmt.Errorf("this key is there twice, and %w: once is accepted", fault.ErrUnused),
				})
			}
			// Several maps may be merged into one, and another key may be a map or an alias.
			seen[key.Value] = key.Kind == yaml.ScalarNode && key.ShortTag() != "!!merge"
		}
		faults = append(faults, repeated(file, here, value)...)
	}
	return faults
}

var (
	lineOf   = regexp.MustCompile(`^line (\d+): `)
	anchorOf = regexp.MustCompile(`^(unknown )?anchor '([^']*)'`)
	// firstLine begins what the parser says of the first line, whose number it leaves out.
	firstLine = regexp.MustCompile(`^(found|did not find|could not find|mapping|block|while) `)
)

// Unreadable returns a *fault.Error for each text in which a parser of YAML says what is wrong with
// the text of a file. Each has the line, if that can be told.
func Unreadable(file string, text []byte, faults ...string) (all []error) {
	if line := notUTF8(text); line > 0 {
		return []error{&fault.Error{File: file, Line: line, Err: errors.New("this is not UTF-8, which alone is accepted")}}
	}
	for _, wrong := range faults {
		wrong = strings.TrimPrefix(wrong, "yaml: ")
		f := &fault.Error{File: file}
		if line := lineOf.FindStringSubmatch(wrong); line != nil {
			f.Line, _ = strconv.Atoi(line[1])
			wrong = wrong[len(line[0]):]
		} else if anchor := anchorOf.FindStringSubmatch(wrong); anchor != nil {
			sign := "*"
			if anchor[1] == "" {
				sign = "&"
			}
			f.Line = lineAt(text, bytes.Index(text, []byte(sign+anchor[2])))
		} else if strings.HasPrefix(wrong, "control characters") {
			f.Line = lineAt(text, bytes.IndexFunc(text, isControl))
		} else if firstLine.MatchString(wrong) {
			f.Line = 1
		}
		f.Err = errors.New(wrong)
		all = append(all, f)
	}
	return all
}

// notUTF8 returns the first line that is not UTF-8, or 0.
func notUTF8(text []byte) int {
	for i := 0; i < len(text); {
		c, n := utf8.DecodeRune(text[i:])
		if c == utf8.RuneError && n == 1 {
			return lineAt(text, i)
		}
		i += n
	}
	return 0
}

func isControl(c rune) bool { return unicode.IsControl(c) && !strings.ContainsRune("\t\n\r\u0085", c) }

// lineAt returns the line of an index, or 0 if it is below 0.
func lineAt(text []byte, i int) int {
	if i < 0 {
		return 0
	}
	return 1 + bytes.Count(text[:i], []byte("\n"))
}
