package configure

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/islet-edge/islet/agent/change/trial"
	"github.com/islet-edge/islet/internal/release"
)

// keepReplaced keeps the installed program under another name, next to the program that is about to replace it, and removes the
// program that an earlier update kept. The kept program is a hard link, so it needs no additional disk space until the rename
// replaces the installed program. If the link cannot be created, the update continues. The node can then return to the replaced
// version only with the archive of that version.
func (k *Keeper) keepReplaced(p *trial.Program) {
	if p.Replaces == "" || p.Replaces != filepath.Base(p.Replaces) {
		return // the running version is unknown: an older program started the trial
	}
	dir := filepath.Dir(p.Installed)
	kept := filepath.Join(dir, release.KeptFile(p.Replaces))
	fresh := kept + ".new"
	err := os.Remove(fresh)
	if err == nil || errors.Is(err, os.ErrNotExist) {
		err = os.Link(p.Installed, fresh)
	}
	if err == nil {
		err = os.Rename(fresh, kept)
	}
	if err != nil {
		k.c.Log.Warn("the replaced program is not kept: a return to its version needs its archive", "version", p.Replaces, "error", err)
		return
	}
	old, _ := filepath.Glob(filepath.Join(dir, release.KeptFile("*")))
	for _, path := range old {
		if path == kept {
			continue
		}
		if err := os.Remove(path); err != nil {
			k.c.Log.Warn("an earlier program cannot be removed", "program", path, "error", err)
		}
	}
}
