package release

// KeptSuffix is the end of the name of the program that an update has replaced. The program stays next to the installed one, so that the
// node can return to it without a download.
const KeptSuffix = ".previous"

// KeptFile returns the name of the kept program of a version.
func KeptFile(version string) string { return Program + "-" + version + KeptSuffix }
