package config

import "path/filepath"

// Locate returns the directories and the node name of an agent with the given command line and the flags of FlagsFile. It reads no
// configuration file, so it also works on a machine whose files do not exist yet.
func Locate(args []string) (Dirs, string, error) { return locate(args, DefaultDir, nil) }

// LocateWith is like Locate, for a machine on which FlagsFile has the given content. The machine has no such file if flags is nil.
func LocateWith(args []string, flags []byte) (Dirs, string, error) {
	if flags == nil {
		return locate(args, "", nil)
	}
	return locate(args, DefaultDir, map[string][]byte{filepath.Join(DefaultDir, FlagsFile): flags})
}

// Directories is like Locate, but it needs no valid node name. A host may get its name later.
func Directories(args []string) (Dirs, error) {
	_, dirs, err := parseDirs(args, DefaultDir, nil)
	return dirs, err
}

// locate is not inlined, because it is called twice.
//
//go:noinline
func locate(args []string, dir string, contents map[string][]byte) (Dirs, string, error) {
	s, dirs, err := parseDirs(args, dir, contents)
	if err != nil {
		return Dirs{}, "", err
	}
	name, err := nodeName(s.Flags.HostnameOverride)
	return dirs, name, err
}

func parseDirs(args []string, dir string, contents map[string][]byte) (*settings, Dirs, error) {
	s, _, _, _, err := parseArguments(args, dir, contents)
	if err != nil {
		return nil, Dirs{}, err
	}
	dirs, err := deriveDirs(&s.Flags)
	return s, dirs, err
}
