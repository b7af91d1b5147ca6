package backup

import (
	"io/fs"
	"os"
	"path"
	"strings"
)

// after is the file system of this board as it is after a restore. Open returns the files of that time. Directories are listed, and links
// are read, as they are on the board before the restore. So a listed file that is set aside does not open.
type after struct {
	fs.ReadLinkFS                   // the board
	files         map[string]string // paths of staged files by their new names without the leading slash; "": set aside
}

// newAfter returns the files after a plan. The parameter to contains the final paths of staged files.
func newAfter(s *Staged, to map[string]string, p *plan) after {
	board, _ := os.DirFS("/").(fs.ReadLinkFS)
	a := after{board, map[string]string{}}
	for _, m := range p.Moves {
		if m.Aside != "" {
			a.files[strings.TrimPrefix(m.To, "/")] = ""
		}
	}
	for _, f := range s.files {
		a.files[strings.TrimPrefix(to[f.name], "/")] = f.path
	}
	return a
}

// Open implements fs.FS.
func (a after) Open(name string) (fs.File, error) {
	for at := name; at != "."; at = path.Dir(at) {
		staged, ok := a.files[at]
		if ok && at == name && staged != "" {
			return os.Open(staged)
		}
		if ok {
			return nil, fs.ErrNotExist
		}
	}
	return a.ReadLinkFS.Open(name)
}
