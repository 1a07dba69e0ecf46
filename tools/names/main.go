// Names measures the names of the repository and the reading order of its files. It prints a row
// for each package and the sums, and fails if a figure is above its bound in bounds.txt:
//
//	go run ./tools/names
//	go run ./tools/names -list
//	go run ./tools/names folder
//
// With -list it also prints where the counted words are, and where arrows run up. A folder is another tree, such as an older
// commit in a work tree of its own. It is measured without bounds.
//
// # Users' names
//
// These are the exported constants, variables, functions and types, and the methods of exported
// types, interfaces among them, of packages that programs import. Fields are not counted: they are
// settings and figures that belong to one name. Packages below a folder internal, test kits, tools,
// examples and the parts of engine are no packages for programs. The names of packages below cmd
// that another module can import are counted apart.
//
// # Arrows
//
// A file has an arrow to another of its package if it uses a name that the other declares: at
// package level, a method or a field. The files have the reading order of a walk: a file stands
// before the files that it uses, unless they use it back. Of the walks that begin at one of the
// files, the one with the fewest arrows up counts. An arrow runs up if its file stands behind the
// file that it uses.
//
// # Words
//
// A long-lived of or at is a variable of that name, or a parameter, that is used more than two lines
// below its declaration, or a field. A superlative is a declared name that begins with most,
// longest, least or few. The letters are the mean of all declared names.
package main

import (
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"go/token"
	"io"
	"os"
	"strings"
)

//go:embed bounds.txt
var accepted string

func main() {
	list := flag.Bool("list", false, "print the position of each long-lived of or at, of each superlative, and of each arrow that runs up")
	flag.Parse()
	root, bounds := ".", accepted
	if flag.NArg() > 0 {
		root, bounds = flag.Arg(0), ""
	}
	if err := run(os.Stdout, root, bounds, *list); err != nil {
		fmt.Fprintln(os.Stderr, "names:", err)
		os.Exit(1)
	}
}

// run writes the figures of the packages below root, and returns an error for each figure above its
// bound.
func run(w io.Writer, root, bounds string, list bool) error {
	packages, err := packagesIn(root)
	if err != nil {
		return err
	}
	var sum figures
	sums := map[string]int{}
	row := func(name string, figures *figures) {
		fmt.Fprintf(w, "%-36s%8d%10d%8d%5d%8d%14d%9.1f\n", name, figures[users], figures[commands], figures[arrows], figures[up], figures[longOfAt], figures[superlatives],
			float64(figures[letters])/float64(max(figures[declared], 1)))
	}
	fmt.Fprintf(w, "%-36s%8s%10s%8s%5s%8s%14s%9s\n", "package", "users'", "commands'", "arrows", "up", "of, at", "superlatives", "letters")
	for _, pkg := range packages {
		figures := measure(pkg, func(position token.Position, name string) {
			if list {
				fmt.Fprintf(w, "%s: %s\n", position, name)
			}
		})
		row(pkg.folder, &figures)
		for i := range figures {
			sum[i] += figures[i]
		}
		sums["up "+pkg.folder] += figures[up]
		if strings.HasPrefix(pkg.folder, "fleet/") { // also bounded together
			sums["up fleet"] += figures[up]
		}
	}
	row("sum", &sum)
	sums["names users"], sums["names commands"] = sum[users], sum[commands]
	sums["words of-at"], sums["words superlatives"] = sum[longOfAt], sum[superlatives]
	if bounds == "" { // another tree
		return nil
	}
	return check(sums, bounds)
}

// check compares figures with the lines of bounds: a kind, a name, the accepted figure, and the
// goal, which is the accepted figure once it is reached. A figure without a line must be 0.
func check(sums map[string]int, bounds string) error {
	limit := map[string]int{}
	for line := range strings.Lines(bounds) {
		var kind, name string
		var bound, goal int
		if _, err := fmt.Sscan(line, &kind, &name, &bound, &goal); err != nil {
			return fmt.Errorf("bounds.txt: %q: %w: want a kind, a name, a bound and a goal", line, err)
		}
		limit[kind+" "+name] = bound
	}
	var all []error
	for name, figure := range sums {
		if figure > limit[name] {
			all = append(all, fmt.Errorf("%s is %d, at most %d is accepted", name, figure, limit[name]))
		}
	}
	return errors.Join(all...)
}
