package migrate

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
)

// addFile adds a translated file. If the name is taken by another content, the new file gets a number.
func (p *planner) addFile(name, content string, from ...string) {
	ext := path.Ext(name)
	unique := name
	for n := 2; ; n++ {
		i := p.fileIndex(unique)
		if i < 0 {
			break
		}
		if p.report.Files[i].content == content {
			return
		}
		unique = fmt.Sprintf("%s-%d%s", strings.TrimSuffix(name, ext), n, ext)
	}
	p.report.Files = append(p.report.Files, File{unique, from, content})
}

func (p *planner) fileIndex(name string) int {
	for i, f := range p.report.Files {
		if f.Path == name {
			return i
		}
	}
	return -1
}

// WriteFiles writes the translated files into dir, which must not exist or must be empty. Only root can read the files, because they may
// have credentials and Secrets.
func (r *Report) WriteFiles(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	if list, err := fs.ReadDir(root.FS(), "."); err != nil {
		return err
	} else if len(list) > 0 {
		return fmt.Errorf("%s is not empty: name a new directory", dir)
	}
	for _, f := range r.Files {
		if err := write(root, f); err != nil {
			return fmt.Errorf("write %s: %w", path.Join(dir, f.Path), err)
		}
	}
	return nil
}

func write(root *os.Root, f File) error {
	if err := root.MkdirAll(path.Dir(f.Path), 0o700); err != nil {
		return err
	}
	file, err := root.OpenFile(f.Path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.WriteString(f.content)
	return errors.Join(err, file.Close())
}

// add appends a text to a list. It is not inlined, because the copies at its many calls would enlarge the program.
//
//go:noinline
func add(list []string, text string) []string { return append(list, text) }
