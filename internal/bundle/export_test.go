package bundle

import "os"

// SyncDir syncs a directory as WriteDir does.
var SyncDir = syncDir

// WriteDirSynced is like WriteDir, with another function to sync a directory.
func (a *Artefact) WriteDirSynced(dir string, sync func(*os.Root) error) error {
	return a.writeDir(dir, sync)
}
