package config

// Locate returns the directories and the node name of an agent with the given command line. It reads no configuration file, so it also
// works on a machine whose files do not exist yet.
func Locate(args []string) (Dirs, string, error) {
	s := settings{KubeletConfiguration: defaultKubelet(), Edge: defaultEdge(), Flags: defaultOptions()}
	fs := newFlagSet(&s)
	if err := fs.parse(args); err != nil {
		return Dirs{}, "", err
	}
	dirs, err := deriveDirs(&s.Flags)
	if err != nil {
		return Dirs{}, "", err
	}
	name, err := nodeName(s.Flags.HostnameOverride)
	return dirs, name, err
}
