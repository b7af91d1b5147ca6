package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/islet-edge/islet/internal/regular"
)

// FlagsFile is the name of the file in DefaultDir with flags of this node, one on each line. A flag of the command line overrides it.
const FlagsFile = "flags"

// parseArguments parses the flags of FlagsFile in the directory dir, if it exists, and then the arguments. It returns all of them. If dir
// is empty, there is no such file. The copy that replaces the file on a damaged disk is in the state directory of the command line.
func parseArguments(args []string, dir string, contents map[string][]byte) (*settings, flagSet, *ownFiles, []string, error) {
	parse := func(args []string) (*settings, flagSet, error) {
		s := &settings{KubeletConfiguration: defaultKubelet(), Edge: defaultEdge(), Flags: defaultOptions()}
		fs := newFlagSet(s)
		return s, fs, fs.parse(args)
	}
	s, given, err := parse(args)
	if err != nil {
		return nil, given, nil, nil, err
	}
	own := newOwnFiles(&s.Flags)
	own.given = contents
	file := filepath.Join(dir, FlagsFile)
	if dir == "" || !own.exists(file) {
		return s, given, own, args, nil
	}
	text, err := own.read(file)
	if err != nil {
		return nil, given, nil, nil, fmt.Errorf("read flags: %w", err)
	}
	listed, err := flagsOf(string(text))
	if err == nil {
		args = append(listed, args...)
		if s, given, err = parse(args); errors.As(err, new(*InfoRequest)) {
			err = errors.New("it may not contain --help or --version")
		}
	}
	if err != nil {
		return nil, given, nil, nil, fmt.Errorf("%s: %w", file, err)
	}
	return s, given, own, args, nil
}

// flagsOf returns the flags in the text of a FlagsFile. Empty lines and lines that begin with # are ignored.
func flagsOf(text string) (flags []string, err error) {
	n := 0
	for line := range strings.Lines(text) {
		n++
		switch line = strings.TrimSpace(line); {
		case line == "" || line[0] == '#':
		case strings.HasPrefix(line, "--"):
			flags = append(flags, line)
		default:
			return nil, fmt.Errorf("line %d is not a flag such as --node-ip=192.0.2.7", n)
		}
	}
	return flags, nil
}

// MaxFlagsFile is the maximum size in bytes of a FlagsFile for callers that read the file without Load.
const MaxFlagsFile = 1 << 20

// ListedFlags returns the flags in a FlagsFile. There are none if the file does not exist, or has a mistake, which Load reports.
func ListedFlags(file string) []string {
	text, err := regular.Read(file, MaxFlagsFile)
	if err != nil {
		return nil
	}
	flags, _ := flagsOf(string(text))
	return flags
}

// HasFlag reports whether arguments have one of the flags with the given names, such as --node-ip.
func HasFlag(args []string, names ...string) bool {
	return slices.ContainsFunc(args, func(arg string) bool {
		name, _, _ := strings.Cut(strings.ReplaceAll(arg, "_", "-"), "=")
		return slices.Contains(names, name)
	})
}
