package main

import (
	"cmp"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"
)

// writeSizes writes the size of each module's functions and data in bytes, the largest first. The last line is the size of the tables that
// the linker creates for all modules together (functions, types, strings).
func writeSizes(out io.Writer, path string, info *debug.BuildInfo) error {
	f, err := elf.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	symbols, err := f.Symbols()
	if err != nil {
		return fmt.Errorf("%s: %w: build it without -s", path, err)
	}
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	sizes, owned := map[string]uint64{}, uint64(0)
	for _, s := range symbols {
		if t := elf.ST_TYPE(s.Info); (t != elf.STT_FUNC && t != elf.STT_OBJECT) || inMemoryOnly(f, s) {
			continue
		}
		sizes[moduleOf(s.Name, info)] += s.Size
		owned += s.Size
	}
	names := make([]string, 0, len(sizes))
	for n := range sizes {
		names = append(names, n)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(sizes[b], sizes[a]), cmp.Compare(a, b)) })
	for _, n := range names {
		fmt.Fprintf(out, "%8.2f MB  %s\n", float64(sizes[n])/1e6, n)
	}
	_, err = fmt.Fprintf(out, "%8.2f MB  tables, symbols and other bytes without a module\n", (float64(st.Size())-float64(owned))/1e6)
	return err
}

// inMemoryOnly reports whether a symbol needs space only in memory and not in the file.
func inMemoryOnly(f *elf.File, s elf.Symbol) bool {
	return int(s.Section) < len(f.Sections) && f.Sections[s.Section].Type == elf.SHT_NOBITS
}

// moduleOf returns the module that contains a symbol. If the paths of several modules match the name of the symbol, it returns the module
// with the longest path.
func moduleOf(symbol string, info *debug.BuildInfo) string {
	name := strings.TrimPrefix(symbol, "type:")
	for _, prefix := range []string{".eq.", ".hash.", "*", "go:itab.", "go:string."} {
		name = strings.TrimPrefix(strings.TrimPrefix(name, prefix), "*")
	}
	best := ""
	for _, m := range append([]*debug.Module{&info.Main}, info.Deps...) {
		// The linker writes a dot in the last element of a path as %2e.
		if strings.HasPrefix(name, m.Path) && len(m.Path) > len(best) && strings.IndexAny(name[len(m.Path):]+"/", "/.%") == 0 {
			best = m.Path
		}
	}
	switch {
	case best != "":
		return best
	case strings.HasPrefix(symbol, "main."):
		return info.Main.Path
	}
	return "Go's library and runtime"
}
