package main

import (
	"go/token"
	"go/types"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// figures are counts of a package, or their sums, by these constants.
type figures [8]int

const users, commands, arrows, up, longOfAt, superlatives, declared, letters = 0, 1, 2, 3, 4, 5, 6, 7

// measure returns the figures of a package, and calls report with the position of each long-lived of
// or at, of each superlative, and of the first use of each arrow that runs up.
func measure(pkg *pkg, report func(position token.Position, name string)) (figures figures) {
	if readers := pkg.readers(); readers >= 0 {
		figures[readers] = pkg.exported()
	}
	figures[arrows], figures[up] = pkg.arrows(report)
	pkg.words(&figures, report)
	return figures
}

// parts are packages at the root that serve engine: programs do not import them.
var parts = []string{"bench", "cell", "cmdqueue", "janitor", "supervisor", "table", "tools", "test", "examples"}

// readers returns the figure of the exported names that programs or commands import, or -1.
func (p *pkg) readers() int {
	first, _, _ := strings.Cut(p.folder, "/")
	if p.types.Name() == "main" || p.folder == "." || strings.Contains("/"+p.folder+"/", "/internal/") || slices.Contains(parts, first) {
		return -1
	}
	if first == "cmd" {
		return commands
	}
	return users
}

// exported counts the exported names of a package, and the exported methods of its exported types.
func (p *pkg) exported() (n int) {
	for _, object := range p.info.Defs {
		if method, ok := object.(*types.Func); ok && method.Exported() && method.Signature().Recv() != nil {
			receiver := method.Signature().Recv().Type()
			if pointer, ok := receiver.(*types.Pointer); ok {
				receiver = pointer.Elem()
			}
			object = nil
			if named, ok := receiver.(*types.Named); ok {
				object = named.Obj()
			}
		}
		if object != nil && object.Exported() && object.Parent() == p.types.Scope() {
			n++
		}
	}
	return n
}

// arrows counts the pairs of files of which the first uses a name of the second, and those that run
// up in the best reading order. It calls report with the first use of each of the latter.
func (p *pkg) arrows(report func(position token.Position, name string)) (all, up int) {
	// uses has the position of the first use for each pair.
	uses := map[[2]int]token.Pos{}
	for ident, object := range p.info.Uses {
		pair := [2]int{p.file(ident.Pos()), p.file(object.Pos())}
		if first, ok := uses[pair]; lasting(object) && pair[0] != pair[1] && pair[1] >= 0 && (!ok || ident.Pos() < first) {
			uses[pair] = ident.Pos()
		}
	}
	var fewest map[[2]int]token.Pos
	for start := range p.files {
		rank := walk(uses, start, len(p.files))
		backward := map[[2]int]token.Pos{}
		for pair, first := range uses {
			if rank[pair[1]] < rank[pair[0]] {
				backward[pair] = first
			}
		}
		if start == 0 || len(backward) < len(fewest) {
			fewest = backward
		}
	}
	for pair, first := range fewest {
		report(p.set.Position(first), "up to "+filepath.Base(p.set.Position(p.files[pair[1]].Pos()).Filename))
	}
	return len(uses), len(fewest)
}

// lasting reports whether an object is declared at package level, or is a method or a field.
func lasting(object types.Object) bool {
	variable, _ := object.(*types.Var)
	_, isFunc := object.(*types.Func)
	return isFunc || variable != nil && variable.IsField() || object.Pkg() != nil && object.Parent() == object.Pkg().Scope()
}

// walk returns the rank of each file in the reading order of a walk from start: each file stands
// before the files that it leads to.
func walk(uses map[[2]int]token.Pos, start, files int) map[int]int {
	pairs := slices.SortedFunc(maps.Keys(uses), func(a, b [2]int) int { return int(uses[a] - uses[b]) })
	ranks := map[int]int{}
	next := files
	var visit func(file int)
	visit = func(file int) {
		if _, seen := ranks[file]; seen {
			return
		}
		ranks[file] = next // until its rank is known
		for _, pair := range pairs {
			if pair[0] == file {
				visit(pair[1])
			}
		}
		next--
		ranks[file] = next
	}
	visit(start)
	for file := range files {
		visit(file)
	}
	return ranks
}

var superlative = regexp.MustCompile(`^([mM]ost|[lL]ongest|[lL]east|[fF]ew(est)?)[A-Z0-9]`)

// words counts the declared names by their words.
func (p *pkg) words(figures *figures, report func(position token.Position, name string)) {
	last := map[types.Object]int{}
	for ident, object := range p.info.Uses {
		last[object] = max(last[object], p.set.Position(ident.Pos()).Line)
	}
	for ident, object := range p.info.Defs {
		if ident.Name == "_" || object == nil {
			continue
		}
		figures[declared]++
		figures[letters] += utf8.RuneCountInString(ident.Name)
		position := p.set.Position(ident.Pos())
		switch {
		case superlative.MatchString(ident.Name):
			figures[superlatives]++
		case (ident.Name == "of" || ident.Name == "at") && (lasting(object) || last[object] > position.Line+2):
			figures[longOfAt]++
		default:
			continue
		}
		report(position, ident.Name)
	}
}
