package release

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/islet-edge/islet/internal/durable"
)

const (
	// Program is the name of islet's program in an archive: at its top, or in the one folder
	// that holds all of it. Further below others may have that name, such as default/islet.
	Program = "islet"
	// maxProgram is the most bytes of a program.
	maxProgram = 256 << 20
	// maxEntries of an archive are looked through.
	maxEntries = 10_000
	// maxUnpacked is the most bytes that are unpacked on the way to the program's end.
	maxUnpacked = 2 * maxProgram
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
// 0755 in dir, and gives its path. The caller removes it. Before the file is made, room says
// whether dir can take so many bytes. What fails leaves nothing, and names the entry of the
// archive.
func (r *Release) Extract(ctx context.Context, archive, dir string, room func(size int64) error) (program string, err error) {
	in, err := os.Open(archive)
	if err != nil {
		return "", err
	}
	defer in.Close()
	return r.extract(ctx, in, maxUnpacked, dir, room)
}

// extract is Extract that unpacks so many bytes at most.
func (r *Release) extract(ctx context.Context, in io.Reader, most int64, dir string, room func(int64) error) (program string, err error) {
	z, err := gzip.NewReader(until(ctx, in))
	if err != nil {
		return "", fmt.Errorf("the archive cannot be unpacked by gzip: %w", err)
	}
	t := tar.NewReader(atMost(most, z))
	at := "at its beginning"
	for range maxEntries {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return "", fmt.Errorf("the archive has no program %q", Program)
		}
		if err != nil {
			return "", fmt.Errorf("the archive cannot be read %s: %w", at, err)
		}
		if h.Typeflag == tar.TypeReg && isProgram(h.Name) {
			program, err := r.program(until(ctx, t), h.Size, dir, room)
			if err != nil {
				err = fmt.Errorf("entry %.200q of the archive: %w", h.Name, err)
			}
			return program, err
		}
		at = fmt.Sprintf("from entry %.200q on", h.Name)
	}
	return "", fmt.Errorf("the archive has more than %d entries before its program", maxEntries)
}

// isProgram says whether an entry of an archive is the program by its name.
func isProgram(name string) bool {
	dir, file := path.Split(path.Clean(name))
	return file == Program && strings.Count(dir, "/") <= 1
}

func (r *Release) program(in io.Reader, size int64, dir string, room func(int64) error) (program string, err error) {
	if size > maxProgram {
		return "", fmt.Errorf("the program has %d bytes, more than %d", size, int64(maxProgram))
	}
	if err := room(size); err != nil {
		return "", err
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
	// The name too: one that is to be tried and is gone after a loss of power would look like one
	// that was put in its place.
	if err := errors.Join(f.Chmod(0o755), f.Sync(), durable.Dir(dir)); err != nil {
		return "", err
	}
	return filepath.Clean(f.Name()), nil
}

// A reader reads by a function.
type reader func(b []byte) (int, error)

func (r reader) Read(b []byte) (int, error) { return r(b) }

// until reads as long as ctx lasts. Below gzip it is asked often enough: a block of the file
// becomes some MiB at most.
func until(ctx context.Context, in io.Reader) io.Reader {
	return reader(func(b []byte) (int, error) {
		if err := context.Cause(ctx); err != nil {
			return 0, err
		}
		return in.Read(b)
	})
}

// atMost reads so many bytes, and fails then.
func atMost(most int64, in io.Reader) io.Reader {
	left := most
	return reader(func(b []byte) (int, error) {
		if left == 0 {
			return 0, fmt.Errorf("it unpacks to %d MiB or more", most>>20)
		}
		n, err := in.Read(b[:min(int64(len(b)), left)])
		left -= int64(n)
		return n, err
	})
}

func missing(n, size int64) error {
	if n == size {
		return nil
	}
	return fmt.Errorf("only %d are there", n)
}

// runsHere says whether a program is one of the release's architecture, by its ELF header. No
// more of the file is parsed: a parser of all of it would be another that reads what others made.
func (r *Release) runsHere(f io.ReaderAt) error {
	want, known := machines[r.Arch]
	if !known {
		return fmt.Errorf("islet is not built for %q", r.Arch)
	}
	h := io.NewSectionReader(f, 0, int64(binary.Size(elf.Header64{})))
	var e struct { // both classes begin so
		Ident   [elf.EI_NIDENT]byte
		Type    uint16
		Machine uint16
	}
	if err := binary.Read(h, binary.LittleEndian, &e); err != nil || string(e.Ident[:len(elf.ELFMAG)]) != elf.ELFMAG {
		return errors.New("the program is no ELF file")
	}
	if rest, err := io.Copy(io.Discard, h); err != nil || rest < int64(binary.Size(elf.Header32{})-binary.Size(e)) {
		return errors.New("the program is no ELF file: its header is cut off")
	}
	class, machine, kind := elf.Class(e.Ident[elf.EI_CLASS]), elf.Machine(e.Machine), elf.Type(e.Type)
	if e.Ident[elf.EI_DATA] != byte(elf.ELFDATA2LSB) || machine != want.machine || class != want.class || kind != elf.ET_EXEC && kind != elf.ET_DYN {
		return fmt.Errorf("the program is of %v (%v), the release says %s", machine, class, r.Arch)
	}
	return nil
}
