// Words counts pronouns in Go comments, the length of sentences, and the comments that stand at the end
// of a line of code, mostly fragments. It prints a row for each folder and the sum, and fails if the sum is
// above a bound. With folders it prints their sentences of more than 25 words:
//
//	go run ./tools/words
//	go run ./tools/words engine cell
package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

const long = 25

// bounds are the accepted figures: of counted words in a thousand words, the mean number of words
// in a sentence, long sentences in a hundred, and comments at line ends. A goal below the accepted figure
// is not reached yet.
var bounds = []struct {
	name      string
	max, goal float64
}{
	{"what", 1.5, 1.5}, {"that of", 0.3, 0.3}, {"of which", 1.5, 1.5}, {"one", 4, 4}, {"it", 14, 14}, {"they, them", 4.2, 4.2},
	{"mean", 14, 14}, {"% long", 4, 4}, {"at line ends", 700, 700},
}

// kinds are the counted words, in the order of bounds.
var kinds = [6]*regexp.Regexp{
	regexp.MustCompile(`(?i)\bwhat\b`),
	regexp.MustCompile(`(?i)\b(that|those) of\b`),
	regexp.MustCompile(`(?i)\b(of which|whose|in which)\b`),
	regexp.MustCompile(`(?i)\bones?\b`),
	regexp.MustCompile(`(?i)\bit\b`),
	regexp.MustCompile(`(?i)\b(they|them)\b`),
}

type count struct {
	words, sentences, long, lineEnds int
	kinds                            [len(kinds)]int
}

func (c *count) add(count count) {
	c.words += count.words
	c.sentences += count.sentences
	c.long += count.long
	c.lineEnds += count.lineEnds
	for i := range c.kinds {
		c.kinds[i] += count.kinds[i]
	}
}

// figures returns the figures of bounds.
func (c *count) figures() []float64 {
	var all []float64
	for _, n := range c.kinds {
		all = append(all, 1000*float64(n)/float64(max(c.words, 1)))
	}
	n := float64(max(c.sentences, 1))
	return append(all, float64(c.words)/n, 100*float64(c.long)/n, float64(c.lineEnds))
}

type sentence struct {
	text  string
	words int
}

// list begins an item of a list, and end ends a sentence.
var (
	list = regexp.MustCompile(`^\s*([-*•]|\d+\.)\s`)
	end  = regexp.MustCompile(`[.!?]["')]*(\s+|$)`)
	word = regexp.MustCompile(`[\p{L}\p{N}]`)
)

// sentences splits the text of a comment, without code (indented lines).
func sentences(text string) []sentence {
	var paragraphs []string
	begun := false
	for line := range strings.Lines(text) {
		item := list.MatchString(line)
		switch {
		case strings.TrimSpace(line) == "":
			begun = false
			continue
		case !item && strings.HasPrefix(line, "\t"), !item && strings.HasPrefix(line, "    "):
			continue
		case !begun, item, strings.HasPrefix(line, "# "):
			paragraphs = append(paragraphs, "")
			begun = true
		}
		paragraphs[len(paragraphs)-1] += " " + strings.TrimSpace(line)
	}
	var all []sentence
	for _, text := range paragraphs {
		for text != "" {
			s := text
			if at := end.FindStringIndex(text); at != nil {
				s = text[:at[1]]
			}
			text = text[len(s):]
			n := 0
			for _, w := range strings.Fields(s) {
				if word.MatchString(w) {
					n++
				}
			}
			if n > 0 {
				all = append(all, sentence{strings.TrimSpace(s), n})
			}
		}
	}
	return all
}

// comments calls f with each comment in the Go files below root. atLineEnd reports whether code stands before
// the comment on its line.
func comments(root string, f func(position token.Position, text string, atLineEnd bool)) error {
	return filepath.WalkDir(root, func(name string, dirEntry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if base := dirEntry.Name(); dirEntry.IsDir() && name != root && (base[0] == '.' || base == "testdata") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		source, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, source, parser.ParseComments)
		if err != nil || ast.IsGenerated(file) {
			return err
		}
		for _, group := range file.Comments {
			if text := group.Text(); !strings.HasPrefix(text, "Output:") && !strings.HasPrefix(text, "Unordered output:") {
				position := set.Position(group.Pos())
				before := source[position.Offset-position.Column+1 : position.Offset]
				f(position, text, len(bytes.TrimSpace(before)) > 0)
			}
		}
		return nil
	})
}

// countOf counts a comment, and calls longs with its long sentences.
func countOf(text string, longs func(sentence)) count {
	var c count
	for _, sentence := range sentences(text) {
		c.words += sentence.words
		c.sentences++
		if sentence.words > long {
			c.long++
			longs(sentence)
		}
		for i, regexp := range kinds {
			c.kinds[i] += len(regexp.FindAllString(sentence.text, -1))
		}
	}
	return c
}

// table prints a row for each folder below root, the most long sentences first, then sum and
// bounds.
func table(w io.Writer, root string) error {
	folders := map[string]*count{}
	var sum count
	err := comments(root, func(position token.Position, text string, atLineEnd bool) {
		name := filepath.ToSlash(filepath.Dir(position.Filename))
		if folders[name] == nil {
			folders[name] = &count{}
		}
		count := countOf(text, func(sentence) {})
		if atLineEnd {
			count.lineEnds++
		}
		folders[name].add(count)
		sum.add(count)
	})
	if err != nil {
		return err
	}
	var names []string
	for name := range folders {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(folders[b].long, folders[a].long), cmp.Compare(a, b))
	})
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(table, "words\t")
	for _, b := range bounds {
		fmt.Fprintf(table, "%s\t", b.name)
	}
	fmt.Fprint(table, " \n")
	row := func(count *count, name string) {
		fmt.Fprintf(table, "%d\t", count.words)
		for _, value := range count.figures() {
			fmt.Fprintf(table, "%s\t", figure(value))
		}
		fmt.Fprintf(table, " %s\n", name)
	}
	for _, name := range names {
		row(folders[name], name)
	}
	row(&sum, "all")
	fmt.Fprint(table, "at most\t")
	for _, b := range bounds {
		fmt.Fprintf(table, "%s\t", figure(b.max))
	}
	fmt.Fprint(table, " \ngoal\t")
	for _, b := range bounds {
		fmt.Fprintf(table, "%s\t", figure(b.goal))
	}
	fmt.Fprint(table, " \n")
	if err := table.Flush(); err != nil {
		return err
	}
	return sum.fault()
}

// figure writes a count as a whole number, and another figure with one decimal.
func figure(value float64) string {
	return strings.TrimSuffix(strconv.FormatFloat(value, 'f', 1, 64), ".0")
}

// fault returns an error if a figure is above its bound.
func (c *count) fault() (err error) {
	for i, value := range c.figures() {
		if b := bounds[i]; value > b.max {
			err = errors.Join(err, fmt.Errorf("%s is %s, at most %s is accepted", b.name, figure(value), figure(b.max)))
		}
	}
	return err
}

func main() {
	var err error
	if len(os.Args) == 1 {
		err = table(os.Stdout, ".")
	}
	for _, root := range os.Args[1:] {
		err = errors.Join(err, comments(root, func(position token.Position, text string, _ bool) {
			countOf(text, func(sentence sentence) { fmt.Printf("%s: %d words: %s\n", position, sentence.words, sentence.text) })
		}))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "words:", err)
		os.Exit(1)
	}
}
