package config

// Locate returns the directories and the node name of an agent with the given command line and the flags of FlagsFile. It reads no
// configuration file, so it also works on a machine whose files do not exist yet.
func Locate(args []string) (Dirs, string, error) {
	s, dirs, err := locate(args)
	if err != nil {
		return Dirs{}, "", err
	}
	name, err := nodeName(s.Flags.HostnameOverride)
	return dirs, name, err
}

// Directories is as Locate, but needs no valid node name. A host may get its name later.
func Directories(args []string) (Dirs, error) {
	_, dirs, err := locate(args)
	return dirs, err
}

func locate(args []string) (*settings, Dirs, error) {
	s, _, _, _, err := parseArguments(args, DefaultDir, nil)
	if err != nil {
		return nil, Dirs{}, err
	}
	dirs, err := deriveDirs(&s.Flags)
	return s, dirs, err
}
