package release

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
)

const (
	// Program is the name of islet's program in an archive, in any folder.
	Program = "islet"
	// maxProgram is the most bytes of a program.
	maxProgram = 256 << 20
	// maxEntries of an archive are looked through.
	maxEntries = 10_000
)

// machines are the architectures that islet is built for.
var machines = map[string]struct {
	class   elf.Class
	machine elf.Machine
}{
	"amd64":   {elf.ELFCLASS64, elf.EM_X86_64},
	"arm64":   {elf.ELFCLASS64, elf.EM_AARCH64},
	"arm":     {elf.ELFCLASS32, elf.EM_ARM},
	"riscv64": {elf.ELFCLASS64, elf.EM_RISCV},
}

// Of is the release of an archive that is read to its end.
func Of(version, arch string, archive io.Reader) (*Release, error) {
	sum := sha512.New()
	n, err := io.Copy(sum, io.LimitReader(archive, MaxArchive+1))
	if err != nil {
		return nil, err
	}
	r := &Release{Size: n}
	sum.Sum(r.SHA512[:0])
	for name, value := range map[string]string{"version": version, "arch": arch, "size": fmt.Sprint(n)} {
		if err := r.set(name, value); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return r, nil
}

// Save keeps an archive that somebody sends in a new file, and fails, leaving none, if it is
// not the one that was signed. Nothing of it is interpreted.
func (r *Release) Save(archive io.Reader, file string) (err error) {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			err = errors.Join(err, os.Remove(file))
		}
	}()
	sum := sha512.New()
	n, err := io.Copy(io.MultiWriter(f, sum), io.LimitReader(archive, r.Size+1))
	if err != nil {
		return fmt.Errorf("receive the archive: %w", err)
	}
	if n != r.Size {
		return fmt.Errorf("the archive has %s bytes, the release says %d", atLeast(n, r.Size), r.Size)
	}
	if !bytes.Equal(sum.Sum(nil), r.SHA512[:]) {
		return errors.New("the archive is not the one that was signed: its SHA-512 is another")
	}
	return f.Sync()
}

func atLeast(n, size int64) string {
	if n > size {
		return fmt.Sprintf("at least %d", n)
	}
	return fmt.Sprint(n)
}

// Extract takes the program out of an archive that Save has kept, into a new file of mode
// 0755 in dir, and gives its path. The caller removes it.
func (r *Release) Extract(archive, dir string) (program string, err error) {
	in, err := os.Open(archive)
	if err != nil {
		return "", err
	}
	defer in.Close()
	z, err := gzip.NewReader(in)
	if err != nil {
		return "", fmt.Errorf("the archive is not packed by gzip: %w", err)
	}
	t := tar.NewReader(z)
	for range maxEntries {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return "", fmt.Errorf("the archive has no program %q", Program)
		}
		if err != nil {
			return "", fmt.Errorf("the archive cannot be read: %w", err)
		}
		if h.Typeflag == tar.TypeReg && path.Base(h.Name) == Program {
			return r.program(t, h.Size, dir)
		}
	}
	return "", fmt.Errorf("the archive has more than %d entries before its program", maxEntries)
}

func (r *Release) program(in io.Reader, size int64, dir string) (program string, err error) {
	if size > maxProgram {
		return "", fmt.Errorf("the program has %d bytes, more than %d", size, int64(maxProgram))
	}
	f, err := os.CreateTemp(dir, Program+"-*.new")
	if err != nil {
		return "", err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
			program = ""
		}
	}()
	if n, err := io.Copy(f, in); err != nil || n != size {
		return "", fmt.Errorf("unpack %d bytes of the program: %w", size, errors.Join(err, missing(n, size)))
	}
	if err := r.runsHere(f); err != nil {
		return "", err
	}
	if err := errors.Join(f.Chmod(0o755), f.Sync()); err != nil {
		return "", err
	}
	return filepath.Clean(f.Name()), nil
}

func missing(n, size int64) error {
	if n == size {
		return nil
	}
	return fmt.Errorf("only %d are there", n)
}

// runsHere says whether a program is one of the release's architecture.
func (r *Release) runsHere(f io.ReaderAt) error {
	want, known := machines[r.Arch]
	if !known {
		return fmt.Errorf("islet is not built for %q", r.Arch)
	}
	e, err := elf.NewFile(f)
	if err != nil {
		return fmt.Errorf("the program is no ELF file: %w", err)
	}
	defer e.Close()
	if e.Machine != want.machine || e.Class != want.class || e.Type != elf.ET_EXEC && e.Type != elf.ET_DYN {
		return fmt.Errorf("the program is of %v (%v), the release says %s", e.Machine, e.Class, r.Arch)
	}
	return nil
}
