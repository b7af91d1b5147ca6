package config

// Locate returns the directories and the node name of an agent with the given command line and the flags of FlagsFile. It reads no
// configuration file, so it also works on a machine whose files do not exist yet.
func Locate(args []string) (Dirs, string, error) {
	s, _, _, _, err := parseArguments(args, DefaultDir, nil)
	if err != nil {
		return Dirs{}, "", err
	}
	dirs, err := deriveDirs(&s.Flags)
	if err != nil {
		return Dirs{}, "", err
	}
	name, err := nodeName(s.Flags.HostnameOverride)
	return dirs, name, err
}
